//! `dvm specs` and `dvm time` as their users meet them.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

const MODEL: &str = "graph mlp(%x: f16[rows, 256], %g: f16[256], %b: f16[256]) -> (%y) {
  const %w: f16[256, 512] = no_data
  const %v: f16[512] = no_data
  %n = layer_norm %x, %g, %b {axis = 1, eps = 1e-5}
  %m = matmul %n, %w
  %a = add %m, %v
  %y = gelu %a {tanh = false}
}
";

/// A folder with a model, removed at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir().join(format!("dvm-time-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("mlp.dvmir"), MODEL).unwrap();
        Scratch(dir)
    }
    fn dvm(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_dvm")).args(args).current_dir(&self.0).output().unwrap()
    }
    fn text(&self, args: &[&str]) -> String {
        let out = self.dvm(args);
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }
    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.text(args)).unwrap()
    }
    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.0.join(file)).unwrap()
    }
    #[track_caller]
    fn fails(&self, args: &[&str], code: i32, words: &[&str]) {
        let out = self.dvm(args);
        let err = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{args:?}: {err}");
        words.iter().for_each(|w| assert!(err.contains(w), "{args:?}: `{w}` is not in: {err}"));
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn specs_are_listed_shown_and_checked() {
    let s = Scratch::new("specs");
    let list = s.text(&["specs"]);
    assert!(list.contains("ascend-910b2") && list.contains("f16 TFLOP/s"), "{list}");
    let doc = s.json(&["specs", "--json"]);
    let chip = doc["specs"].as_array().unwrap().iter().find(|d| d["name"] == "ascend-910b2").unwrap();
    assert_eq!((&chip["cores"], &chip["cube_cores"]), (&Value::from(48), &Value::from(24)));
    // The published peak.
    let peak = chip["half_flops_per_s"].as_f64().unwrap();
    assert!((peak / 353.9e12 - 1.0).abs() < 0.01, "{peak}");
    let shown = s.text(&["specs", "show", "ascend-910b2"]);
    assert!(shown.contains("# [H]") && shown.contains("[timing]"));
    std::fs::write(s.0.join("mine.toml"), shown.replace("hbm_peak", "hbm_pick")).unwrap();
    s.fails(&["specs", "show", "mine.toml"], 1, &["mine.toml", "hbm_pick"]);
    std::fs::write(
        s.0.join("mine.toml"),
        "inherits = \"ascend-910b2\"\nname = \"mine\"\n[timing]\nmhz = 900\n",
    )
    .unwrap();
    assert!(s.text(&["specs", "show", "mine.toml"]).contains("mhz = 900"));
    s.fails(&["specs", "show", "ascend"], 1, &["unknown machine `ascend`", "ascend-950"]);
}

#[test]
fn a_model_is_timed() {
    let s = Scratch::new("model");
    let text = s.text(&["time", "mlp.dvmir", "--dim", "rows=200", "--compare", "--sensitivity"]);
    for part in [
        "us predicted",
        "decode",
        "roofline",
        "memory",
        "host and device",
        "eager",
        "no fusion",
        "* critical",
    ] {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
    let doc = s.json(&["time", "mlp.dvmir", "--dim", "rows=200", "--compare", "--json"]);
    let p = &doc["programs"][0];
    let us = p["us"].as_f64().unwrap();
    assert!(us >= p["roofline"]["bound_us"].as_f64().unwrap() && us > 1.0);
    // What a pipe does and what it waits for is all of its time.
    for core in p["cores"].as_array().unwrap() {
        for pipe in core["pipes"].as_array().unwrap() {
            let stalls: f64 = pipe["stalls_us"].as_object().unwrap().values().filter_map(Value::as_f64).sum();
            let sum = pipe["busy_us"].as_f64().unwrap() + stalls;
            assert!((sum / us - 1.0).abs() < 1e-6, "{pipe}: {sum} of {us}");
        }
    }
    let row =
        |name: &str| p["launch"].as_array().unwrap().iter().find(|r| r["name"] == name).unwrap().clone();
    let total = |name: &str| row(name)["total_us"].as_f64().unwrap();
    // Four ops: three kernels at most, launched together; eagerly one by one.
    assert_eq!(row("eager")["launches"], 4);
    assert_eq!(row("shape in the cache")["launches"], 1);
    assert!(total("shape in the cache") < total("eager") && total("eager") < total("no fusion"));
    let (first, hidden) = (row("new shape, compile first"), row("new shape, compile hidden"));
    let exposed = |r: &Value| r["exposed_compile_us"].as_f64().unwrap();
    assert!(exposed(&hidden) <= exposed(&first) + 1e-6 && exposed(&first) > 0.0);
}

#[test]
fn what_if() {
    let s = Scratch::new("whatif");
    let time = |more: &[&str]| {
        let args = [&["time", "mlp.dvmir", "--dim", "rows=4000", "--json"], more].concat();
        s.json(&args)["programs"][0]["us"].as_f64().unwrap()
    };
    assert!(time(&["--set", "mhz=900"]) > time(&[]));
    assert!(time(&["--set", "decode=4000"]) > time(&[]));
    let csv = s.text(&[
        "time",
        "mlp.dvmir",
        "--dim",
        "rows=4000",
        "--sweep",
        "ub=64K..256K",
        "--sweep",
        "mhz=900,1800",
        "--csv",
    ]);
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!((lines[0], lines.len()), ("ub,mhz,us,change_percent,least_us,memory_mb,critical", 7), "{csv}");
    assert!(lines[1].starts_with("65536,900,") && lines[6].starts_with("262144,1800,"), "{csv}");
    let doc = s.json(&["time", "mlp.dvmir", "--dim", "rows=64", "--sweep", "ub=64,192K", "--json"]);
    // Too small to compile for: said, not left out.
    assert!(doc["points"][0]["error"].is_string() && doc["points"][1]["us"].is_number(), "{doc}");
}

/// `]` and all: every event has what viewers need.
#[test]
fn traces_and_pages() {
    let s = Scratch::new("trace");
    s.text(&["compile", "mlp.dvmir", "--dim", "rows=64", "--spec", "ascend-910b2", "-o", "m.dvmb"]);
    s.text(&["time", "m.dvmb", "--trace", "t.json", "--html", "t.html"]);
    s.text(&["time", "mlp.dvmir", "--dim", "rows=64", "--trace", "model.json", "--html", "model.html"]);
    for (file, host) in [("t.json", false), ("model.json", true)] {
        let doc: Value = serde_json::from_str(&s.read(file)).unwrap();
        let events = doc["traceEvents"].as_array().unwrap();
        let spans: Vec<&Value> = events.iter().filter(|e| e["ph"] == "X").collect();
        assert!(spans.len() > 20 && events.iter().any(|e| e["name"] == "thread_name"), "{file}");
        for e in &spans {
            assert!(
                e["ts"].as_f64().unwrap() >= 0.0 && e["dur"].as_f64().unwrap() >= 0.0 && e["pid"].is_u64()
            );
        }
        let product = spans.iter().find(|e| e["name"] == "mmad").unwrap();
        assert!(product["args"]["instruction"].as_str().unwrap().starts_with("mmad.f16"));
        assert!(product["args"]["waited for"].is_string());
        let ops = product["args"]["ops"].as_str().unwrap();
        assert_eq!(ops.contains("matmul"), host, "{file}: {ops}");
        let encode = spans.iter().any(|e| e["name"].as_str().is_some_and(|n| n.starts_with("encode")));
        assert_eq!(encode, host, "{file}");
    }
    for file in ["t.html", "model.html"] {
        let page = s.read(file);
        for outside in ["http:", "https:", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "{file} refers to {outside}");
        }
        assert!(!page.contains("@DATA@") && page.contains("mmad"));
        let data = page.split("id=\"data\">").nth(1).and_then(|d| d.split("</script>").next()).unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert!(
            data["lanes"].as_array().unwrap().iter().all(|l| l["spans"]
                .as_array()
                .unwrap()
                .len()
                .is_multiple_of(6))
        );
    }
}

#[test]
fn errors_are_named() {
    let s = Scratch::new("errors");
    s.text(&["compile", "mlp.dvmir", "--dim", "rows=64", "--spec", "ascend-910b2", "-o", "m.dvmb"]);
    let model = ["time", "mlp.dvmir", "--dim", "rows=64"];
    let with = |more: &[&'static str]| [&model[..], more].concat();
    s.fails(&with(&["--set", "hbm_pick=1"]), 1, &["no number `hbm_pick`", "timing.hbm_peak"]);
    s.fails(&with(&["--set", "hbm_peak"]), 2, &["is not NAME=VALUE"]);
    s.fails(&with(&["--set", "mhz=-3"]), 1, &["timing.mhz = -3"]);
    s.fails(&with(&["--sweep", "ub=8..4"]), 2, &["goes up"]);
    s.fails(&with(&["--spec", "nowhere"]), 1, &["unknown machine `nowhere`"]);
    s.fails(&["time", "mlp.dvmir"], 1, &["no value for rows"]);
    s.fails(&["time", "m.dvmb", "--dim", "rows=3"], 2, &["compiled already"]);
    s.fails(&["time", "m.dvmb", "--set", "ub=1M"], 2, &["`ub` decides how a model is compiled"]);
    s.fails(&["time", "m.dvmb", "--spec", "ascend-910b3"], 1, &["48 cores", "40 cores"]);
    s.fails(&["time", "absent.dvmb"], 1, &["absent.dvmb"]);
}

//! The command as its users meet it: output, files and exit codes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use dvm::{Tensor, npz};

const MODEL: &str = "graph scale(%x: f32[rows, cols], %w: f32[cols]) -> (%y) {
  %m = mul %x, %w
  %y = exp %m
}
";

/// A folder that is removed at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir().join(format!("dvm-cli-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("scale.dvm"), MODEL).unwrap();
        Scratch(dir)
    }
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
    /// Runs the command in the folder.
    fn dvm(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_dvm")).args(args).current_dir(&self.0).output().unwrap()
    }
    fn json(&self, args: &[&str]) -> serde_json::Value {
        let out = self.dvm(args);
        assert!(out.status.success(), "{args:?}: {}", text(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn fails(out: &Output, code: i32, words: &[&str]) {
    let err = text(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "{err}");
    for w in words {
        assert!(err.contains(w), "`{w}` is not in: {err}");
    }
}

fn golden(path: &Path, y: f32) {
    let t = |shape: &[usize], v: &[f32]| Tensor::from_slice(shape, v).unwrap();
    let arrays = [
        ("s0.in.x", t(&[1, 2], &[0., 0.])),
        ("s0.in.w", t(&[2], &[1., 1.])),
        ("s0.out.y", t(&[1, 2], &[1., 1.])),
        ("s1.in.x", t(&[2, 1], &[1., 0.])),
        ("s1.in.w", t(&[1], &[1.])),
        ("s1.out.y", t(&[2, 1], &[std::f32::consts::E, y])),
    ];
    npz::save_npz(path, &arrays.map(|(n, t)| (n.to_string(), t))).unwrap();
}

#[test]
fn every_help_has_examples() {
    let s = Scratch::new("help");
    for args in [&["--help"][..], &["run", "--help"], &["inspect", "--help"], &["explain", "--help"]]
        .into_iter()
        .chain([&["compile", "--help"][..], &["disasm", "--help"], &["demo", "--help"]])
    {
        let out = s.dvm(args);
        assert!(out.status.success());
        assert!(text(&out.stdout).contains("Examples:"), "{args:?}");
    }
}

#[test]
fn several_dims_run_in_one_session() {
    let s = Scratch::new("dims");
    let doc =
        s.json(&["run", "scale.dvm", "--dim", "rows=2", "--dim", "cols=3,4,0", "--repeat", "2", "--json"]);
    assert_eq!(doc["version"], 1);
    let runs = doc["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 6);
    for (i, r) in runs.iter().enumerate() {
        assert_eq!(r["dims"]["cols"], [3, 4, 0][i / 2]);
        assert_eq!(r["cache_hit"], i % 2 == 1);
        assert_eq!(r["launches"], 1);
        assert_eq!(r["plan_us"].as_f64().unwrap() > 0.0, i == 0, "planned in the first run only");
        assert_eq!(r["compile_us"].as_f64().unwrap() > 0.0, i % 2 == 0);
        for key in ["run_us", "kernels", "bytecode_bytes", "peak_bytes"] {
            assert!(r[key].is_number(), "{key}");
        }
    }
}

#[test]
fn goldens_of_several_steps() {
    let s = Scratch::new("golden");
    golden(&s.path("good.npz"), 1.0);
    golden(&s.path("bad.npz"), 1.5);
    let out = s.dvm(&["run", "scale.dvm", "--golden", "good.npz"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    fails(
        &s.dvm(&["run", "scale.dvm", "--golden", "bad.npz"]),
        3,
        &["`y`", "[1, 0]", "got 1", "expected 1.5"],
    );
    let out = s.dvm(&["run", "scale.dvm", "--golden", "bad.npz", "--rtol", "0.5"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
}

#[test]
fn a_golden_file_without_outputs_checks_nothing() {
    let s = Scratch::new("no-outputs");
    let x = Tensor::from_slice(&[1, 1], &[0f32]).unwrap();
    npz::save_npz(&s.path("in.npz"), &[("in.x".into(), x)]).unwrap();
    let args = ["run", "scale.dvm", "--dim", "cols=1", "--golden", "in.npz"];
    fails(&s.dvm(&args), 1, &["in.npz", "no expected outputs"]);
}

#[test]
fn inputs_may_have_any_name() {
    let s = Scratch::new("names");
    let names = ["in.x", "w.npy"];
    let model = MODEL.replace("%x:", "%\"in.x\":").replace("%w:", "%\"w.npy\":");
    let model = model.replace("mul %x, %w", "mul %\"in.x\", %\"w.npy\"");
    std::fs::write(s.path("odd.dvm"), model).unwrap();
    let t = Tensor::from_slice(&[1, 1], &[0f32]).unwrap();
    let w = Tensor::from_slice(&[1], &[0f32]).unwrap();
    npz::save_npz(&s.path("in.npz"), &[(names[0].into(), t), (names[1].into(), w)]).unwrap();
    let out = s.dvm(&["run", "odd.dvm", "--inputs", "in.npz", "--json"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let json = text(&out.stdout);
    assert!(json.starts_with("{\"version\":1,\"runs\":[{\"dims\":{"), "keys in the documented order: {json}");
}

#[test]
fn inputs_and_outputs_as_files() {
    let s = Scratch::new("files");
    let x = Tensor::from_slice(&[1, 2], &[0f32, 1.]).unwrap();
    let w = Tensor::from_slice(&[2], &[1f32, 1.]).unwrap();
    npz::save_npz(&s.path("in.npz"), &[("x".into(), x)]).unwrap();
    std::fs::write(s.path("w.npy"), npz::write_npy(&w)).unwrap();
    let out =
        s.dvm(&["run", "scale.dvm", "--inputs", "in.npz", "--input", "w=w.npy", "--outputs", "out.npz"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let outputs = npz::load_npz(&s.path("out.npz")).unwrap();
    assert_eq!(outputs[0].0, "y");
    let y = outputs[0].1.as_slice::<f32>().unwrap();
    assert!((y[0] - 1.0).abs() < 1e-6 && (y[1] - std::f32::consts::E).abs() < 1e-6);
}

#[test]
fn a_bundle_gives_the_models_outputs() {
    let s = Scratch::new("bundle");
    let dims = ["--dim", "rows=3", "--dim", "cols=5"];
    let run = |model: &str, extra: &[&str], to: &str| {
        let out = s.dvm(&[&["run", model, "--outputs", to], extra].concat());
        assert!(out.status.success(), "{}", text(&out.stderr));
        npz::load_npz(&s.path(to)).unwrap()
    };
    for spec in ["host-ref", "ascend-910b2"] {
        let args =
            [&["compile", "scale.dvm", "-o", "m.dvmb", "--with-weights", "--spec", spec][..], &dims].concat();
        let out = s.dvm(&args);
        assert!(out.status.success(), "{}", text(&out.stderr));
        assert_eq!(run("m.dvmb", &[], "a.npz"), run("scale.dvm", &dims, "b.npz"), "{spec}");
        let out = s.dvm(&["disasm", "m.dvmb"]);
        assert!(out.status.success());
        let listing = text(&out.stdout);
        let note = listing.lines().find(|l| l.contains("vexp")).unwrap_or_default();
        assert!(
            listing.starts_with(&format!("bundle {spec}\nsymbol rows = 3\n")) && note.contains("; %"),
            "{listing}"
        );
        assert_eq!(s.dvm(&["check", "m.dvmb"]).status.code(), Some(0));
        // Text and bytes are one program.
        assert!(s.dvm(&["disasm", "m.dvmb", "-o", "m.dvmasm"]).status.success());
        assert!(s.dvm(&["asm", "m.dvmasm", "-o", "again.dvmb"]).status.success());
        assert_eq!(text(&s.dvm(&["disasm", "again.dvmb"]).stdout), listing);
        assert_eq!(run("again.dvmb", &[], "c.npz"), run("m.dvmb", &[], "a.npz"));
    }
    fails(&s.dvm(&["run", "m.dvmb", "--dim", "rows=4"]), 1, &["rows=3"]);
    let mut bytes = std::fs::read(s.path("m.dvmb")).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(s.path("damaged.dvmb"), bytes).unwrap();
    fails(&s.dvm(&["run", "damaged.dvmb"]), 1, &["damaged.dvmb"]);
}

#[test]
fn inspect_and_explain() {
    let s = Scratch::new("inspect");
    let out = s.dvm(&["inspect", "scale.dvm"]);
    let listing = text(&out.stdout);
    for word in ["x: f32[rows, cols]", "y: f32[rows, cols]", "rows, cols", "exp", "mul"] {
        assert!(listing.contains(word), "`{word}` is not in: {listing}");
    }
    assert_eq!(s.json(&["inspect", "scale.dvm", "--json"])["inputs"][1]["name"], "w");
    let out = s.dvm(&["explain", "scale.dvm", "--kernels"]);
    let listing = text(&out.stdout);
    assert!(listing.contains("1 calls of 1 distinct kernels") && listing.contains("mul, exp"), "{listing}");
    let dims = ["--dim", "rows=300", "--dim", "cols=768", "--spec", "host-ref"];
    let mut tiling = vec!["explain", "scale.dvm", "--tiling"];
    tiling.extend(dims);
    let shown = s.dvm(&tiling);
    tiling.push("--json");
    let kernel = &s.json(&tiling)["kernels"][0];
    let totals: Vec<f64> =
        kernel["candidates"].as_array().unwrap().iter().map(|c| c["total_ns"].as_f64().unwrap()).collect();
    assert!(totals.len() > 3, "{kernel}");
    let shown = text(&shown.stdout);
    let best = shown.lines().find(|l| l.starts_with("> ")).unwrap_or_else(|| panic!("{shown}"));
    let least = totals.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(best.ends_with(&format!("{least:.0}")), "the least is taken: {shown}");
    fails(&s.dvm(&["explain", "scale.dvm", "--tiling"]), 1, &["rows", "no value"]);
    assert!(s.dvm(&["explain", "scale.dvm", "--dot", "plan.dot"]).status.success());
    assert!(std::fs::read_to_string(s.path("plan.dot")).unwrap().contains("mul_exp"));
    assert_eq!(s.json(&["explain", "scale.dvm", "--json"])["calls"].as_array().unwrap().len(), 1);
}

#[test]
fn errors_say_what_and_where() {
    let s = Scratch::new("errors");
    fails(&s.dvm(&["run", "scale.dvm", "--dim", "rows=2"]), 1, &["cols", "--dim"]);
    fails(&s.dvm(&["run", "scale.dvm", "--dim", "nope=2"]), 1, &["`nope`", "rows, cols"]);
    fails(&s.dvm(&["run", "scale.dvm", "--dim", "rows"]), 2, &["NAME=VALUE"]);
    fails(&s.dvm(&["run", "scale.dvm", "--dim", "rows=1,2", "--dim", "cols=1,2,3"]), 2, &["one length"]);
    fails(&s.dvm(&["run", "scale.dvm", "--dim", "rows=1", "--dim", "rows=2"]), 2, &["rows", "twice"]);
    for bad in ["nan", "-1", "x"] {
        let rtol = format!("--rtol={bad}");
        fails(&s.dvm(&["run", "scale.dvm", "--golden", "g.npz", &rtol]), 2, &[bad]);
    }
    fails(&s.dvm(&["run", "scale.dvm", "--dim", "rows=-1", "--dim", "cols=1"]), 1, &["rows", "-1"]);
    fails(&s.dvm(&["run", "missing.onnx"]), 1, &["missing.onnx"]);
    let out = s.dvm(&["run", "scale.dvm", "--inputs", "missing.npz"]);
    fails(&out, 1, &["missing.npz"]);
    assert_eq!(text(&out.stderr).matches("No such file").count(), 1, "a cause is told once");
    fails(&s.dvm(&["run", "scale.dvm", "--spec", "nope"]), 1, &["nope", "host-ref"]);
    fails(&s.dvm(&["nonsense"]), 2, &["nonsense"]);
    std::fs::write(s.path("bad.dvm"), "graph g(%x: f32[a]) -> (%y) {\n  %y = expp %x\n}\n").unwrap();
    fails(&s.dvm(&["run", "bad.dvm"]), 1, &["expp", "bad.dvm:2"]);
    std::fs::write(s.path("bad.onnx"), [0xff; 40]).unwrap();
    fails(&s.dvm(&["run", "bad.onnx"]), 1, &["bad.onnx"]);
    let w = Tensor::from_slice(&[3], &[1f32; 3]).unwrap();
    std::fs::write(s.path("w.npy"), npz::write_npy(&w)).unwrap();
    let args = ["run", "scale.dvm", "--input", "w=w.npy", "--dim", "rows=2", "--dim", "cols=4"];
    fails(&s.dvm(&args), 1, &["cols", "4", "3"]);
    fails(
        &s.dvm(&["run", "scale.dvm", "--input", "v=w.npy", "--dim", "rows=1", "--dim", "cols=1"]),
        1,
        &["`v`"],
    );
}

#[test]
fn the_demo_checks_itself() {
    let s = Scratch::new("demo");
    let doc = s.json(&["demo", "--json"]);
    let runs = doc["runs"].as_array().unwrap();
    assert!(runs.len() >= 12);
    assert!(runs.iter().all(|r| r["max_difference"].as_f64().unwrap() < 1e-3));
}

/// The hand-written kernel that the README shows.
const SOFTMAX: &str = include_str!("../../../examples/softmax.dvmasm");

#[test]
fn a_kernel_written_by_hand() {
    let s = Scratch::new("hand");
    std::fs::write(s.path("softmax.dvmasm"), SOFTMAX).unwrap();
    let values: Vec<f32> = (0..70_000).map(|i| (i * 37 % 1001) as f32 / 500.0 - 1.0).collect();
    let x = Tensor::from_slice(&[100, 700], &values).unwrap();
    npz::save_npz(&s.path("in.npz"), &[("x".into(), x.clone())]).unwrap();
    std::fs::write(s.path("x.npy"), npz::write_npy(&x)).unwrap();
    let run = |args: &[&str]| {
        let out = s.dvm(&[&["run"], args, &["--outputs", "out.npz"]].concat());
        assert!(out.status.success(), "{}", text(&out.stderr));
        npz::load_npz(&s.path("out.npz")).unwrap().remove(0)
    };
    let (name, z) = run(&["softmax.dvmasm", "--inputs", "in.npz"]);
    assert_eq!((name.as_str(), z.shape()), ("z", &[70_000][..]));
    for (row, z) in values.chunks(700).zip(z.as_slice::<f32>().unwrap().chunks(700)) {
        let sum: f64 = row.iter().map(|&v| f64::from(v).exp()).sum();
        assert!(row.iter().zip(z).all(|(&x, &z)| (f64::from(x).exp() / sum - f64::from(z)).abs() < 1e-6));
    }
    // As a bundle it is the same program, comments included.
    assert!(s.dvm(&["asm", "softmax.dvmasm"]).status.success());
    assert_eq!(run(&["softmax.dvmb", "--input", "x=x.npy"]).1, z);
    let listing = text(&s.dvm(&["disasm", "softmax.dvmb"]).stdout);
    assert!(
        listing.starts_with("program softmax\n") && listing.contains("; maximum of each row"),
        "{listing}"
    );
    assert_eq!(text(&s.dvm(&["disasm", "softmax.dvmasm"]).stdout), listing);
    let out = s.dvm(&["check", "softmax.dvmasm"]);
    assert!(out.status.success() && text(&out.stdout).contains("verifier   accepted"));
    assert_eq!(text(&s.dvm(&["inspect", "softmax.dvmasm"]).stdout).matches("f32[70000]").count(), 2);

    fails(&s.dvm(&["run", "softmax.dvmasm"]), 1, &["`x` (f32[70000])", "--fill"]);
    assert!(s.dvm(&["run", "softmax.dvmasm", "--fill"]).status.success());
    std::fs::write(s.path("y.npy"), npz::write_npy(&Tensor::from_slice(&[2], &[0f32; 2]).unwrap())).unwrap();
    fails(&s.dvm(&["run", "softmax.dvmasm", "--input", "x=y.npy"]), 1, &["`x`", "[70000]", "[2]"]);
    fails(&s.dvm(&["run", "softmax.dvmasm", "--input", "y=y.npy", "--fill"]), 1, &["`y`", "inputs are x"]);
    fails(&s.dvm(&["run", "softmax.dvmasm", "--fill", "--dim", "n=1"]), 1, &["no symbol `n`"]);
    fails(&s.dvm(&["asm", "softmax.dvmb"]), 2, &["bundle already"]);
    fails(&s.dvm(&["asm", "scale.dvm"]), 1, &["expected `program` or `bundle`", "scale.dvm:1:1"]);
    fails(
        &s.dvm(&["compile", "softmax.dvmasm", "-o", "m.dvmb"]),
        1,
        &["softmax.dvmasm", "compiled bytecode"],
    );
}

#[test]
fn what_is_wrong_with_a_kernel_is_shown_in_it() {
    let s = Scratch::new("wrong");
    let write = |from: &str, to: &str| {
        assert!(SOFTMAX.contains(from));
        std::fs::write(s.path("bad.dvmasm"), SOFTMAX.replace(from, to)).unwrap();
    };
    write("vexp.f32", "vexq.f32");
    let line = 1 + SOFTMAX.lines().position(|l| l.contains("vexp")).unwrap();
    let place = format!("bad.dvmasm:{line}:7");
    for command in [&["run", "--fill"][..], &["asm"], &["disasm"], &["check"], &["inspect"]] {
        let out = s.dvm(&[command, &["bad.dvmasm"]].concat());
        fails(&out, 1, &["error: `vexq` is no instruction", &place, "^^^^"]);
        assert_eq!(text(&out.stderr).matches("error: ").count(), 1, "{}", text(&out.stderr));
    }
    write("vexp.f32 l0, l0", "vexp.f32 l0, l1090");
    let out = s.dvm(&["check", "bad.dvmasm"]);
    assert_eq!(out.status.code(), Some(4));
    let shown = text(&out.stdout);
    assert!(shown.contains("1 violation(s)") && shown.contains(&place), "{shown}");
    fails(&s.dvm(&["run", "bad.dvmasm", "--fill"]), 1, &["does not verify", "body #3 vexp"]);
    assert!(s.dvm(&["asm", "bad.dvmasm"]).status.success(), "what is no safe program is still a program");
    let doc: serde_json::Value =
        serde_json::from_str(&text(&s.dvm(&["check", "bad.dvmb", "--json"]).stdout)).unwrap();
    let found = &doc["programs"][0]["violations"][0];
    assert_eq!(found["instruction"], "vexp.f32 l0, l1090, cols 16800|2800@g0");
    assert_eq!(doc["programs"][0]["sound"], false);
    fails(&s.dvm(&["check", "bad.dvmb", "--target", "tiny"]), 2, &["compiled already"]);
}

#[test]
fn models_are_checked_for_a_machine() {
    let s = Scratch::new("check");
    for target in ["host-ref", "ascend-910b2", "ascend-950", "tiny"] {
        let out = s.dvm(&["check", "scale.dvm", "--dim", "rows=300", "--dim", "cols=70", "--target", target]);
        assert!(out.status.success(), "{}", text(&out.stdout));
        assert!(text(&out.stdout).contains(&format!("for {target}")));
    }
    // Without events there are hazards; with one end of an event only, the verifier objects. Both are shown in the text.
    let compile = [
        "compile",
        "scale.dvm",
        "-o",
        "m.dvmb",
        "--target",
        "ascend-910b2",
        "--dim",
        "rows=300",
        "--dim",
        "cols=70",
    ];
    assert!(s.dvm(&compile).status.success());
    let listing = text(&s.dvm(&["disasm", "m.dvmb"]).stdout);
    let line = listing.lines().position(|l| l.contains("vmul")).unwrap();
    for (whole, part) in [(true, "hazards"), (false, "violation")] {
        let bare = |(i, l): (usize, &'_ str)| {
            let cut = (whole || i == line) && !l.trim_start().starts_with("program");
            if cut { l.split('{').next().unwrap().to_owned() } else { l.to_owned() }
        };
        let broken: Vec<String> = listing.lines().enumerate().map(bare).collect();
        std::fs::write(s.path("broken.dvmasm"), broken.join("\n")).unwrap();
        let out = s.dvm(&["check", "broken.dvmasm"]);
        assert_eq!(out.status.code(), Some(4), "{}", text(&out.stderr));
        let shown = text(&out.stdout);
        for part in ["verifier", part, "broken.dvmasm:"] {
            assert!(shown.contains(part), "`{part}` is not in: {shown}");
        }
        let place = format!("broken.dvmasm:{}:7", line + 1);
        assert!(!whole || shown.contains(&place) && shown.contains("vmul.f32"), "{shown}");
    }
    let out = s.dvm(&["check", "broken.dvmasm", "--json"]);
    let doc: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((out.status.code(), &doc["programs"][0]["sound"]), (Some(4), &serde_json::json!(false)));
    fails(&s.dvm(&["check", "scale.dvm"]), 1, &["rows", "--dim"]);
    fails(&s.dvm(&["check", "missing.dvmb"]), 1, &["missing.dvmb"]);
}

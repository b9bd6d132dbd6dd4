use dvm_bc::testing::*;
use dvm_bc::*;
fn main() {
    let n: u64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let mut ok = 0;
    let mut why = std::collections::BTreeMap::<String, u64>::new();
    let mut ops = std::collections::BTreeMap::<&str, (u64, u64)>::new();
    for seed in 0..n {
        let g = program(&mut Dice::Seed(seed));
        let r = Verified::new(g.program.clone(), &small_limits());
        for t in &g.program.templates {
            for p in &t.phases {
                for s in &p.sections {
                    for i in s.code.iter() {
                        let e = ops.entry(i.unwrap().op.mnemonic()).or_default();
                        e.0 += 1;
                        if r.is_ok() {
                            e.1 += 1
                        }
                    }
                }
            }
        }
        match r {
            Ok(_) => ok += 1,
            Err(e) => {
                let m = e.violations[0].to_string();
                let k: String =
                    m.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect::<String>();
                let mut k2 = String::new();
                for c in k.chars() {
                    if c == '#' && k2.ends_with('#') {
                        continue;
                    }
                    k2.push(c);
                }
                *why.entry(k2).or_default() += 1;
                if let Some(p) = std::env::args().nth(2) {
                    if m.contains(&p) {
                        println!("seed {seed} {e}\n{}", disasm(&g.program));
                        return;
                    }
                }
            }
        }
    }
    println!("{ok} of {n}");
    let mut v: Vec<_> = why.into_iter().collect();
    v.sort_by_key(|x| std::cmp::Reverse(x.1));
    for (k, c) in v.iter().take(25) {
        println!("{c:6} {k}");
    }
    println!("{ops:?}");
}

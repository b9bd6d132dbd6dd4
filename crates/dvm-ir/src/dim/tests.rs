use super::*;

fn table() -> (DimTable, Dim, Dim) {
    let mut t = DimTable::new();
    let (b, s) = (t.symbol("b"), t.symbol("s"));
    (t, b, s)
}

#[test]
fn equal_functions_are_equal_ids() {
    let (mut t, b, s) = table();
    let c12 = t.constant(12);
    let c32 = t.constant(32);
    let whole = t.product(&[b, s, c12, c32]);
    let part = t.product(&[b, s, c12]);
    assert_eq!(t.floor_div(whole, part), c32);
    let x = t.add(b, s);
    let y = t.add(s, b);
    assert_eq!(x, y);
    let z = t.sub(x, s);
    assert_eq!(z, b);
    let c4 = t.constant(4);
    let c9 = t.constant(9);
    let e = t.add(s, c9);
    let q = t.floor_div(e, c4);
    assert_eq!(t.display(q).to_string(), "floordiv(s + 1, 4) + 2");
    let r = t.rem(whole, c12);
    assert_eq!(r, Dim::ZERO);
}

#[test]
fn answers_and_facts() {
    let (mut t, b, s) = table();
    let minus = t.constant(-1);
    assert_eq!(t.is_equal(s, minus), Answer::Disproven);
    assert_eq!(t.is_equal(b, s), Answer::Unknown);
    t.assume_equal(b, s);
    assert_eq!(t.is_equal(b, s), Answer::Proven);
    let eq = t.eq(s, minus);
    assert_eq!(t.select(eq, Dim::ONE, s), s);
}

#[test]
fn a_known_quotient_bounds_what_is_divided() {
    let (mut t, b, s) = table();
    let two = t.constant(2);
    let next = t.add(s, Dim::ONE);
    let half = t.floor_div(next, two);
    // 2 * floor((s + 1) / 2) - 1 <= s holds for every s, and goes on to hold when the quotient is known.
    let twice = t.mul(half, two);
    let last = t.sub(twice, Dim::ONE);
    assert!(t.at_most(last, s));
    t.assume_equal(half, Dim::ONE);
    assert!(t.at_most(last, s));
    assert_eq!(t.range(s), (1, 2));
    // Of a quotient by what is no constant nothing is learnt.
    let q = t.floor_div(s, b);
    t.assume_equal(q, two);
    assert_eq!(t.range(b).0, 0);
}

#[test]
fn evaluation_reports_why() {
    let (mut t, b, s) = table();
    let d = t.broadcast(b, s).unwrap();
    let mut bind = Bindings::new();
    bind.bind(t.find_symbol("b").unwrap(), 3).unwrap();
    assert_eq!(t.eval(d, &bind), Err(DimError::Unbound { symbol: "s".into() }));
    bind.bind(t.find_symbol("s").unwrap(), 4).unwrap();
    assert_eq!(t.eval(d, &bind), Err(DimError::Broadcast { dim: "broadcast(b, s)".into(), a: 3, b: 4 }));
    let mut bind = Bindings::new();
    bind.bind(t.find_symbol("b").unwrap(), 1).unwrap();
    bind.bind(t.find_symbol("s").unwrap(), 4).unwrap();
    assert_eq!(t.eval(d, &bind), Ok(4));
}

#[test]
fn normal_forms() {
    let check = |build: fn(&mut DimTable, Dim, Dim) -> Dim, expect: &str| {
        let (mut t, b, s) = table();
        let d = build(&mut t, b, s);
        assert_eq!(t.display(d).to_string(), expect);
    };
    check(
        |t, b, s| {
            let x = t.sub(s, b);
            t.sub(x, Dim::ONE)
        },
        "s - b - 1",
    );
    check(
        |t, b, _| {
            let e = t.eq(Dim::ONE, b);
            t.not(e)
        },
        "1 - eq(b, 1)",
    );
    check(
        |t, b, s| {
            let x = t.min(b, s);
            let y = t.min(s, x);
            t.sub(y, x)
        },
        "0",
    );
    check(
        |t, b, s| {
            let x = t.min(b, s);
            t.max(x, s)
        },
        "s",
    );
    check(
        |t, b, s| {
            let x = t.broadcast(b, s).unwrap();
            t.broadcast(b, x).unwrap()
        },
        "broadcast(b, s)",
    );
    check(
        |t, _, s| {
            let (c2, c6) = (t.constant(2), t.constant(6));
            let x = t.mul(s, c2);
            let x = t.add(x, Dim::ONE);
            t.floor_div(x, c6)
        },
        "floordiv(s, 3)",
    );
    check(
        |t, _, s| {
            let (c2, c3) = (t.constant(2), t.constant(3));
            let x = t.floor_div(s, c2);
            t.floor_div(x, c3)
        },
        "floordiv(s, 6)",
    );
    check(
        |t, b, s| {
            let x = t.mul(b, s);
            let x = t.add(x, Dim::ONE);
            t.floor_div(x, b)
        },
        "floordiv(1, b) + s",
    );
    check(
        |t, b, s| {
            let c2 = t.constant(2);
            let (x, y) = (t.mul(b, c2), t.mul(s, c2));
            t.eq(x, y)
        },
        "eq(b, s)",
    );
    check(
        |t, b, s| {
            let (x, y) = (t.mul(b, s), t.mul(s, b));
            t.sub(x, y)
        },
        "0",
    );
}

#[test]
fn proofs_see_through_clamps() {
    let (mut t, b, s) = table();
    let [c3, c4, c5] = [3, 4, 5].map(|n| t.constant(n));
    let clamped = t.min(s, c5);
    assert_eq!(t.is_less(s, clamped), Answer::Disproven);
    let cut = t.sub(s, c3);
    let cut = t.max(cut, Dim::ZERO);
    assert_eq!(t.is_less(s, cut), Answer::Disproven);
    // The last window of (s - 3) / 4 + 1 windows of 3 elements ends inside.
    let span = t.sub(s, c3);
    let q = t.floor_div(span, c4);
    let last = t.mul(q, c4);
    let end = t.add(last, c3);
    assert_eq!(t.is_less(s, end), Answer::Disproven);
    let even = t.add(s, s);
    let odd = t.add(even, Dim::ONE);
    let twice = t.add(b, b);
    assert_eq!(t.is_equal(odd, twice), Answer::Disproven);
    let len = t.len();
    let late = t.mul(b, odd);
    let len = len + 1;
    assert_eq!(t.is_equal(late, clamped), Answer::Unknown);
    assert_eq!(t.len(), len, "a question leaves the table as it was");
}

#[test]
fn hostile_expressions_stay_small() {
    let (mut t, b, s) = table();
    // Both operands share the previous level: as a tree this has 2^n nodes.
    let (mut x, mut y) = (b, s);
    for i in 0..300 {
        let c = t.constant(i);
        let z = t.mul(y, c);
        (x, y) = (t.min(x, z), t.max(x, z));
    }
    t.assume_equal(b, s);
    assert!(t.display(x).to_string().len() < 100_000);
    assert_eq!(t.is_equal(x, b), Answer::Unknown);
    let r = t.replace(x, b, s);
    assert!(t.len() < 10_000 && t.range(r).0 <= 0);
    // Products and sums of many symbols end in an overflow, not in all memory.
    let mut p = Dim::ONE;
    let mut sum = Dim::ZERO;
    for i in 0..200 {
        let v = t.symbol(&format!("s{i}"));
        sum = t.add(sum, v);
        p = t.mul(p, sum);
    }
    assert_eq!(t.display(p).to_string(), "overflow()");
    let (most, least) = (t.constant(i64::MAX), t.constant(i64::MIN));
    for d in [t.add(most, Dim::ONE), t.neg(least), t.mul(least, least), t.floor_div(b, least)] {
        assert_eq!(t.display(d).to_string(), "overflow()");
    }
}

mod against_brute_force {
    use super::*;
    use proptest::prelude::*;

    /// Symbols 0 and 1 are extents, 2 is a value that may be negative.
    const NAMES: [&str; 3] = ["b", "s", "v"];

    #[derive(Clone, Debug)]
    enum E {
        Const(i64),
        Sym(usize),
        Add(Box<E>, Box<E>),
        Sub(Box<E>, Box<E>),
        Mul(Box<E>, Box<E>),
        Div(Box<E>, Box<E>),
        CeilDiv(Box<E>, Box<E>),
        Rem(Box<E>, Box<E>),
        Min(Box<E>, Box<E>),
        Max(Box<E>, Box<E>),
        Broadcast(Box<E>, Box<E>),
        Eq(Box<E>, Box<E>),
        Lt(Box<E>, Box<E>),
    }

    fn expr() -> impl Strategy<Value = E> {
        let leaf = prop_oneof![(-4i64..9).prop_map(E::Const), (0usize..3).prop_map(E::Sym)];
        leaf.prop_recursive(4, 12, 2, |e| {
            (0u8..13, e.clone(), e).prop_map(|(k, a, b)| {
                let make = match k {
                    0 | 11 => E::Add,
                    1 => E::Sub,
                    2 | 12 => E::Mul,
                    3 => E::Div,
                    4 => E::CeilDiv,
                    5 => E::Rem,
                    6 => E::Min,
                    7 => E::Max,
                    8 => E::Broadcast,
                    9 => E::Eq,
                    _ => E::Lt,
                };
                make(Box::new(a), Box::new(b))
            })
        })
    }

    /// The value by the book; `None` where it has none.
    fn value(e: &E, at: &[i64; 3]) -> Option<i64> {
        let v = |x: &E| value(x, at);
        let floor = |a: i64, b: i64| (b != 0).then(|| (a as f64 / b as f64).floor() as i64);
        Some(match e {
            E::Const(c) => *c,
            E::Sym(s) => at[*s],
            E::Add(a, b) => v(a)?.checked_add(v(b)?)?,
            E::Sub(a, b) => v(a)?.checked_sub(v(b)?)?,
            E::Mul(a, b) => v(a)?.checked_mul(v(b)?)?,
            E::Div(a, b) => floor(v(a)?, v(b)?)?,
            E::CeilDiv(a, b) => -floor(-v(a)?, v(b)?)?,
            E::Rem(a, b) => v(a)? - v(b)? * floor(v(a)?, v(b)?)?,
            E::Min(a, b) => v(a)?.min(v(b)?),
            E::Max(a, b) => v(a)?.max(v(b)?),
            E::Broadcast(a, b) => match (v(a)?, v(b)?) {
                (a, b) if a == b || b == 1 => a,
                (1, b) => b,
                _ => return None,
            },
            E::Eq(a, b) => i64::from(v(a)? == v(b)?),
            E::Lt(a, b) => i64::from(v(a)? < v(b)?),
        })
    }

    /// `None` where a broadcast is refused.
    fn build(e: &E, t: &mut DimTable) -> Option<Dim> {
        Some(match e {
            E::Const(c) => t.constant(*c),
            E::Sym(2) => t.value_symbol(NAMES[2]),
            E::Sym(s) => t.symbol(NAMES[*s]),
            E::Add(a, b) => both(t, a, b, DimTable::add)?,
            E::Sub(a, b) => both(t, a, b, DimTable::sub)?,
            E::Mul(a, b) => both(t, a, b, DimTable::mul)?,
            E::Div(a, b) => both(t, a, b, DimTable::floor_div)?,
            E::CeilDiv(a, b) => both(t, a, b, DimTable::ceil_div)?,
            E::Rem(a, b) => both(t, a, b, DimTable::rem)?,
            E::Min(a, b) => both(t, a, b, DimTable::min)?,
            E::Max(a, b) => both(t, a, b, DimTable::max)?,
            E::Broadcast(a, b) => both(t, a, b, DimTable::broadcast)??,
            E::Eq(a, b) => both(t, a, b, DimTable::eq)?,
            E::Lt(a, b) => both(t, a, b, DimTable::lt)?,
        })
    }
    fn both<T>(t: &mut DimTable, a: &E, b: &E, f: fn(&mut DimTable, Dim, Dim) -> T) -> Option<T> {
        let (a, b) = (build(a, t)?, build(b, t)?);
        Some(f(t, a, b))
    }

    fn fresh() -> DimTable {
        let mut t = DimTable::new();
        t.symbol("b");
        t.symbol("s");
        t.value_symbol("v");
        t
    }
    fn points() -> impl Iterator<Item = [i64; 3]> {
        let extents = [0, 1, 2, 3, 7];
        extents.into_iter().flat_map(move |b| {
            extents.into_iter().flat_map(move |s| [-3, 0, 1, 2, 8].into_iter().map(move |v| [b, s, v]))
        })
    }
    fn bind(t: &DimTable, at: &[i64; 3]) -> Bindings {
        let mut b = Bindings::new();
        for (name, &v) in NAMES.iter().zip(at) {
            b.bind(t.find_symbol(name).unwrap(), v).unwrap();
        }
        b
    }

    fn agrees(answer: Answer, holds: bool) -> bool {
        match answer {
            Answer::Proven => holds,
            Answer::Disproven => !holds,
            Answer::Unknown => true,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn values_and_answers(x in expr(), y in expr()) {
            let mut t = fresh();
            let (dx, dy) = (build(&x, &mut t), build(&y, &mut t));
            for (e, d) in [(&x, dx), (&y, dy)] {
                for at in points() {
                    let Some(v) = value(e, &at) else { continue };
                    let Some(d) = d else { panic!("{e:?} was refused, but is {v} at {at:?}") };
                    prop_assert_eq!(t.eval(d, &bind(&t, &at)), Ok(v), "{} at {:?}", t.display(d), at);
                    let (lo, hi) = t.range(d);
                    prop_assert!(lo <= i128::from(v) && i128::from(v) <= hi, "{} at {:?}", t.display(d), at);
                }
            }
            let (Some(dx), Some(dy)) = (dx, dy) else { return Ok(()) };
            let len = t.len();
            let (equal, less) = (t.is_equal(dx, dy), t.is_less(dx, dy));
            let even = t.is_multiple_of(dx, 2);
            prop_assert_eq!(t.len(), len);
            for at in points() {
                let (Some(a), Some(b)) = (value(&x, &at), value(&y, &at)) else { continue };
                prop_assert!(agrees(equal, a == b) && agrees(less, a < b), "{:?} {:?} at {:?}", equal, less, at);
                prop_assert!(agrees(even, a % 2 == 0), "{:?} at {:?}", even, at);
            }
        }

        #[test]
        fn facts_hold_where_assumed(p in expr(), q in expr(), x in expr(), y in expr(), most in any::<bool>()) {
            let mut t = fresh();
            let (Some(dp), Some(dq)) = (build(&p, &mut t), build(&q, &mut t)) else { return Ok(()) };
            let Some(before) = build(&x, &mut t) else { return Ok(()) };
            if most { t.assume_at_most(dp, dq) } else { t.assume_equal(dp, dq) }
            let (dx, dy) = (build(&x, &mut t), build(&y, &mut t));
            let rewritten = t.rewrite(before);
            let (Some(dx), Some(dy)) = (dx, dy) else { return Ok(()) };
            let (equal, less) = (t.is_equal(dx, dy), t.is_less(dx, dy));
            for at in points() {
                let holds = match (value(&p, &at), value(&q, &at)) {
                    (Some(a), Some(b)) => if most { a <= b } else { a == b },
                    _ => false,
                };
                let (Some(a), Some(b)) = (value(&x, &at), value(&y, &at)) else { continue };
                if holds {
                    for d in [before, dx, rewritten] {
                        prop_assert_eq!(t.eval(d, &bind(&t, &at)), Ok(a), "{} at {:?}", t.display(d), at);
                    }
                    prop_assert!(agrees(equal, a == b) && agrees(less, a < b), "{:?} {:?} at {:?}", equal, less, at);
                }
            }
        }

        #[test]
        fn replacing_a_symbol_is_substitution(x in expr(), to in expr()) {
            let mut t = fresh();
            let (Some(d), Some(e)) = (build(&x, &mut t), build(&to, &mut t)) else { return Ok(()) };
            let s = t.symbol("s");
            let r = t.replace(d, s, e);
            for at in points() {
                // Extents are not negative, and the normal form relies on it.
                let Some(v) = value(&to, &at).filter(|&v| v >= 0) else { continue };
                if let Some(expect) = value(&x, &[at[0], v, at[2]]) {
                    prop_assert_eq!(t.eval(r, &bind(&t, &at)), Ok(expect), "{} at {:?}", t.display(r), at);
                }
            }
        }
    }
}

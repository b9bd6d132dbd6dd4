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

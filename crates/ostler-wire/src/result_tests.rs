use super::*;

fn head(text: &str) -> Result<ResultHead, ResultError> {
    ResultHead::parse(text.as_bytes())
}

fn page(text: &str) -> Result<ListPage, ResultError> {
    ListPage::parse(&Bytes::copy_from_slice(text.as_bytes()), "tools", "name", usize::MAX)
}

#[test]
fn items_beyond_the_limit_are_counted_and_not_kept() {
    let text = r#"{"tools":[{"name":"a"},7,{"title":"t"},{"name":"b"},{"name":"c"},{"name":"a"},8]}"#;
    let page = ListPage::parse(&Bytes::from(text), "tools", "name", 2).unwrap();
    assert_eq!(page.items.iter().map(|item| &*item.name).collect::<Vec<_>>(), ["a", "b"]);
    let dropped: Vec<_> = page.dropped.iter().map(|item| (item.index, &*item.why)).collect();
    assert_eq!(dropped, [(1, "not an object"), (2, "no `name`"), (5, "the name `a` is taken")]);
    assert_eq!((page.excess_count, page.duplicate_names), (2, vec!["a".to_owned()]));
}

#[test]
fn of_a_million_bad_items_a_few_are_told_and_all_are_counted() {
    let text = format!(r#"{{"tools":[{}0]}}"#, "0,".repeat(99_999));
    let page = page(&text).unwrap();
    assert_eq!((page.dropped.len(), page.dropped_count), (MAX_REPORTED_DROPS, 100_000));
}

#[test]
fn a_plain_result_has_the_default_head() {
    let default = ResultHead::default();
    assert_eq!((default.kind.clone(), default.cache_scope), (ResultKind::Complete, CacheScopeHint::Private));
    for text in ["{}", r#"{"content":[{"type":"text","text":"{\"ttlMs\":5,\"isError\":true}"}]}"#] {
        assert!(!may_carry_hints(text.as_bytes()));
        assert_eq!(head(text).unwrap(), default);
    }
}

#[test]
fn hints_are_read_at_the_top_level_only() {
    let text = r#"{"content":[{"isError":true,"ttlMs":1}],"resultType":"complete","ttlMs":5000,"cacheScope":"public"}"#;
    let expected =
        ResultHead { ttl_ms: Some(5000), cache_scope: CacheScopeHint::Public, ..ResultHead::default() };
    assert_eq!(head(text).unwrap(), expected);
}

#[test]
fn kinds_and_scopes_err_on_the_careful_side() {
    let kinds = [
        (r#""complete""#, ResultKind::Complete),
        (r#""input_required""#, ResultKind::InputRequired),
        (r#""task""#, ResultKind::Task),
        (r#""later""#, ResultKind::Other("later".into())),
        ("null", ResultKind::Other("null".into())),
        ("7", ResultKind::Other("7".into())),
    ];
    for (raw, kind) in kinds {
        assert_eq!(head(&format!(r#"{{"resultType":{raw}}}"#)).unwrap().kind, kind);
    }
    for raw in ["null", "\"private\"", "\"PUBLIC\"", "1"] {
        assert_eq!(
            head(&format!(r#"{{"ttlMs":1,"cacheScope":{raw}}}"#)).unwrap().cache_scope,
            CacheScopeHint::Private
        );
    }
    for (raw, is_error) in [("true", true), ("false", false), ("null", false), ("1", true), ("\"no\"", true)]
    {
        assert_eq!(head(&format!(r#"{{"isError":{raw}}}"#)).unwrap().is_error, is_error, "{raw}");
    }
}

#[test]
fn lifetimes_of_any_size_are_understood() {
    let table = [
        ("0", Some(0)),
        ("-1", Some(-1)),
        ("1500.9", Some(1500)),
        ("-0.5", Some(-1)),
        ("1e3", Some(1000)),
        ("1e400", Some(i64::MAX)),
        ("-1e400", Some(i64::MIN)),
        ("99999999999999999999", Some(i64::MAX)),
        ("null", None),
        ("\"5\"", None),
        ("true", None),
    ];
    for (raw, ttl) in table {
        assert_eq!(head(&format!(r#"{{"ttlMs":{raw}}}"#)).unwrap().ttl_ms, ttl, "{raw}");
    }
}

#[test]
fn an_escaped_spelling_hides_nothing() {
    assert_eq!(head(r#"{"result\u0054ype":"input_required"}"#).unwrap().kind, ResultKind::InputRequired);
    assert_eq!(
        head(r#"{"isError":false,"is\u0045rror":true,"ttlMs":9}"#),
        Err(ResultError::Duplicate("isError".into()))
    );
}

#[test]
fn wrong_results_have_names() {
    for text in ["", "[]", "5", "null"] {
        assert_eq!(head(text), Err(ResultError::NotAnObject));
        assert_eq!(page(text), Err(ResultError::NotAnObject));
    }
    assert!(matches!(head(r#"{"ttlMs":1"#), Err(ResultError::NotJson { .. })));
    assert_eq!(ResultHead::parse(b"{\"ttlMs\":\"\xff\"}"), Err(ResultError::NotUtf8));
    assert_eq!(page(r#"{"tools":[],"nextCursor":5}"#), Err(ResultError::BadCursor));
    assert_eq!(page(r#"{"tools":[],"tools":[]}"#), Err(ResultError::Duplicate("tools".into())));
    for text in ["{}", r#"{"tools":{}}"#, r#"{"tools":null}"#] {
        assert_eq!(page(text), Err(ResultError::NoList("tools".into())), "{text}");
    }
}

#[test]
fn an_item_that_no_request_could_name_is_dropped() {
    let long = "n".repeat(MAX_NAME_BYTES + 1);
    let text = format!(
        r#"{{"tools":[{{"name":"a\u0007"}},{{"name":"{long}"}},{{"name":"a\u009b1m"}},{{"name":"b"}}]}}"#
    );
    let page = page(&text).unwrap();
    assert_eq!(page.items.iter().map(|item| item.name.as_str()).collect::<Vec<_>>(), ["b"]);
    let why = "`name` has more than 1024 bytes or a control character";
    assert!(page.dropped.iter().all(|dropped| dropped.why == why) && page.dropped.len() == 3, "{page:?}");
    let text = format!(r#"{{"resources":[{{"uri":"x://{long}"}},{{"uri":"x://a\nb"}}]}}"#);
    let page = ListPage::parse(&Bytes::from(text), "resources", "uri", usize::MAX).unwrap();
    assert_eq!((page.items.len(), page.dropped.len()), (1, 1));
}

#[test]
fn a_bad_item_is_dropped_alone() {
    let text = r#"{"nextCursor":"","ttlMs":7,"tools":[{"name":"a","n":1e400}, 5, {"title":"x"}, {"name":7},
        {"name":"b","n\u0061me":"c"}, {"name":"a"}, {"name":"\ud800"}, {"x":{"name":"y"},"name":"d\u0065"}]}"#;
    let page = page(text).unwrap();
    let items: Vec<_> = page.items.iter().map(|item| (item.name.as_str(), &item.raw[..])).collect();
    assert_eq!(
        items,
        [("a", &br#"{"name":"a","n":1e400}"#[..]), ("de", &br#"{"x":{"name":"y"},"name":"d\u0065"}"#[..])]
    );
    let dropped: Vec<_> = page.dropped.iter().map(|dropped| (dropped.index, dropped.why.as_str())).collect();
    assert_eq!(
        dropped,
        [
            (1, "not an object"),
            (2, "no `name`"),
            (3, "`name` is not a string"),
            (4, "`name` occurs twice"),
            (5, "the name `a` is taken"),
            (6, "`name` is not a string"),
        ]
    );
    assert_eq!((page.head.next_cursor.as_deref(), page.head.ttl_ms), (Some(""), Some(7)));
}

#[test]
fn a_result_that_denies_its_failure_is_not_parsed_for_it() {
    let table = [
        (r#"{"content":[]}"#, false),
        (r#"{"isError":false}"#, false),
        (r#"{"isError" : null}"#, false),
        (r#"{"isError": true}"#, true),
        (r#"{"isError":"no"}"#, true),
        (r#"{"a":{"isError":true},"isError":false}"#, true),
        (r#"{"\u0069sError":true}"#, true),
    ];
    for (raw, may_be) in table {
        assert_eq!(may_be_error(raw.as_bytes()), may_be, "{raw}");
        assert!(may_be || !head(raw).unwrap().is_error, "{raw}");
    }
}

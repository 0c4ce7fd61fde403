use proptest::prelude::*;
use serde_json::value::RawValue;

use super::*;

fn fast(json: &str) -> Option<Vec<RawMember<'_>>> {
    let mut found = [("", ""); MAX_MEMBERS];
    split_members(json, &mut found).map(|count| found[..count].to_vec())
}

/// Returns the members that `serde_json` finds.
fn parsed(json: &str) -> Option<Vec<(String, String)>> {
    let mut all = Vec::new();
    crate::object::for_each_member_serde(json, |key, value| all.push((key.0.to_owned(), value.to_owned())))
        .ok()
        .map(|()| all)
}

/// Asserts that the fast walk either gives up or finds the same members as `serde_json`.
fn assert_alike(json: &str) {
    if let Some(found) = fast(json) {
        let found: Vec<_> =
            found.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        assert_eq!(Some(found), parsed(json), "{json}");
    }
}

#[test]
fn members_are_found_as_they_are_written() {
    let json = " { \"a\\u0062\" : [1,  {\"x\":[]}] ,\"c\":null,\n\"d\":\"a\\\"b\", \"e\":-0.5e+10,\"f\":{}} ";
    let found = fast(json).unwrap();
    assert_eq!(
        found,
        [
            ("\"a\\u0062\"", "[1,  {\"x\":[]}]"),
            ("\"c\"", "null"),
            ("\"d\"", "\"a\\\"b\""),
            ("\"e\"", "-0.5e+10"),
            ("\"f\"", "{}"),
        ]
    );
    assert_eq!(fast("{}").unwrap(), []);
}

#[test]
fn what_is_no_object_is_left_to_the_general_parser() {
    let bad = [
        "",
        " ",
        "[]",
        "1",
        "{",
        "{]",
        "{}}",
        "{} x",
        "{,}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{\"a\":1 \"b\":2}",
        "{\"a\":01}",
        "{\"a\":1.}",
        "{\"a\":.5}",
        "{\"a\":1e}",
        "{\"a\":-}",
        "{\"a\":+1}",
        "{\"a\":tru}",
        "{\"a\":nul",
        "{\"a\":\"\u{1}\"}",
        "{\"a\":\"\n\"}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\u12g4\"}",
        "{\"a\":\"\\u12",
        "{\"a\":\"x",
        "{\"a\":[1,]}",
        "{\"a\":[1 2]}",
        "{\"a\":[}",
        "{\"a\":[1}}",
        "{\"a\":{\"b\":1]}",
        "{\"a\":{1:2}}",
        "{a:1}",
        "{'a':1}",
        "{\"a\":NaN}",
        "{\"a\":1}\u{0}",
        "\u{feff}{}",
        "{\"a\":\u{a0}1}",
        "{\"a\":truefalse}",
        "{\"a\":1-2}",
    ];
    for json in bad {
        assert_eq!(fast(json), None, "{json}");
        assert_eq!(parsed(json), None, "{json}");
    }
}

#[test]
fn too_many_members_and_too_deep_values_are_left_to_it_too() {
    let wide = |count: usize| {
        let members: Vec<String> = (0..count).map(|at| format!("\"{at}\":{at}")).collect();
        format!("{{{}}}", members.join(","))
    };
    assert_eq!(fast(&wide(MAX_MEMBERS)).unwrap().len(), MAX_MEMBERS);
    assert_eq!(fast(&wide(MAX_MEMBERS + 1)), None);
    for depth in [1, 63, 64, 65, 1_000] {
        let arrays = format!("{{\"a\":{}{}}}", "[".repeat(depth) + "1", "]".repeat(depth));
        let objects = format!("{{\"a\":{}1{}}}", "{\"x\":".repeat(depth), "}".repeat(depth));
        assert_eq!(fast(&arrays).is_some(), depth <= 64, "{depth}");
        assert_eq!(fast(&objects).is_some(), depth <= 64, "{depth}");
        assert_alike(&arrays);
        assert_alike(&objects);
    }
}

#[test]
fn a_special_byte_is_found_at_every_place_of_a_string() {
    for length in 0..24 {
        for at in 0..=length {
            let plain = "é".repeat(at / 2) + &"x".repeat(length - at / 2);
            for special in ["\\\"", "\\\\", "\\u00e9", "\u{7f}", "\u{1f}", "\u{0}", "\"", "\\"] {
                let mut text: String = plain.chars().collect();
                let place = text.char_indices().nth(at).map_or(text.len(), |(place, _)| place);
                text.insert_str(place, special);
                let json = format!("{{\"{text}\":\"{text}\"}}");
                assert_alike(&json);
                assert_eq!(fast(&json).is_some(), parsed(&json).is_some(), "{json:?}");
            }
        }
    }
}

#[test]
fn a_text_that_is_cut_off_anywhere_is_no_object() {
    let json = r#"{"a":[true,false,null,{"b":"\u00e9\n","c":-1.5e-7}],"d":"é"}"#;
    assert!(fast(json).is_some());
    for (end, _) in json.char_indices() {
        assert_eq!(fast(&json[..end]), None, "{}", &json[..end]);
    }
}

proptest! {
    #[test]
    fn both_walks_see_the_same_in_mutated_messages(
        seed in prop::sample::select(vec![
            r#"{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"a__b","arguments":{"x":[1,2.5e3,"é\"\\"]}}}"#,
            r#"{"jsonrpc":"2.0","id":"x","result":{"content":[{"type":"text","text":"\u00e9 \n"}],"isError":false}}"#,
            "{ \"a\" : [ ] , \"b\" : { \"c\" : { } , \"d\" : [ [ ] , { } ] } }",
        ]),
        edits in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(vec![
            '{', '}', '[', ']', '"', '\\', ',', ':', ' ', '0', '1', '-', '.', 'e', 'u', 't', 'n', '\n', '\u{1}', 'é',
        ]), any::<bool>()), 1..4),
    ) {
        let mut text: Vec<char> = seed.chars().collect();
        for (at, with, is_inserted) in edits {
            let at = at.index(text.len());
            if is_inserted { text.insert(at, with) } else { text[at] = with }
        }
        let text: String = text.into_iter().collect();
        assert_alike(&text);
        // All texts are shallow and narrow, so the fast walk takes them all.
        prop_assert_eq!(fast(&text).is_some(), parsed(&text).is_some(), "{}", text);
    }

    #[test]
    fn both_walks_see_the_same_in_any_value(value in "[\\[\\]{}:,\"\\\\ 0-9.eE+\\-truefalsn\u{0}-\u{1f}é]{0,24}") {
        let json = format!("{{\"k\":{value}}}");
        assert_alike(&json);
        prop_assert_eq!(fast(&json).is_some(), parsed(&json).is_some(), "{}", json);
        let is_value = serde_json::from_str::<&RawValue>(&value).is_ok();
        prop_assert!(!is_value || parsed(&json).is_some());
    }
}

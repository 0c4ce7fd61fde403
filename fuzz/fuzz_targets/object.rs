//! Members of an object, and edits of them: equal to those of a plain JSON library.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use ostler_wire::{
    MemberEdit, all_members, edit, has_capability, member, push_json_string, result_to_legacy,
    result_to_modern, text_member,
};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

fn object(raw: &[u8]) -> Option<Map<String, Value>> {
    match serde_json::from_slice(raw).ok()? {
        Value::Object(object) => Some(object),
        _ => None,
    }
}

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    let mut quoted = Vec::new();
    push_json_string(&mut quoted, &text);
    assert_eq!(
        serde_json::from_slice::<String>(&quoted).ok().as_deref(),
        Some(&*text),
        "a text is written whole"
    );

    let raw = Bytes::copy_from_slice(input);
    let changes = [
        ("a", MemberEdit::Set(b"1".as_slice())),
        ("b", MemberEdit::Remove),
        ("c", MemberEdit::Default(b"{}")),
    ];
    let edited = edit(input, &changes);
    let (modern, hinted, legacy) =
        (result_to_modern(&raw, false), result_to_modern(&raw, true), result_to_legacy(&raw));
    let _ = has_capability(text.as_bytes(), "tools.listChanged");
    let all = all_members(input);
    let is_object = serde_json::from_slice::<&RawValue>(input).is_ok_and(|raw| raw.get().starts_with('{'));
    assert_eq!(all.is_some(), is_object, "nothing but an object is taken for one");
    // The plain library refuses numbers beyond a double and lone surrogates; ours does not.
    let Some(plain) = object(input) else { return };

    let all = all.expect("an object has members");
    let keys: std::collections::BTreeSet<&str> = all.iter().map(|(key, _)| key.as_str()).collect();
    assert!(
        keys.iter().copied().eq(plain.keys().map(String::as_str).collect::<std::collections::BTreeSet<_>>())
    );
    for (key, value) in &plain {
        let mut values = all.iter().filter(|(name, _)| name == key).map(|(_, value)| *value);
        let is_once = values.clone().count() == 1;
        assert_eq!(
            serde_json::from_slice::<Value>(values.next_back().expect("it was counted")).ok().as_ref(),
            Some(value)
        );
        assert_eq!(member(input, key).is_some(), is_once, "a doubled member is none");
        if let (true, Value::String(text)) = (is_once, value) {
            assert_eq!(text_member(input, key).as_deref(), Some(text.as_str()));
        }
    }

    let edited = edited.expect("an object can be edited");
    let mut wanted = plain.clone();
    wanted.insert("a".into(), 1.into());
    wanted.remove("b");
    wanted.entry("c").or_insert_with(|| Value::Object(Map::new()));
    assert_eq!(object(&edited).as_ref(), Some(&wanted));

    let mut wanted = plain.clone();
    wanted.entry("resultType").or_insert_with(|| "complete".into());
    assert_eq!(object(&modern).as_ref(), Some(&wanted));
    wanted.entry("ttlMs").or_insert_with(|| 0.into());
    wanted.entry("cacheScope").or_insert_with(|| "private".into());
    assert_eq!(object(&hinted).as_ref(), Some(&wanted));
    let mut wanted = plain;
    wanted.retain(|key, _| !matches!(key.as_str(), "resultType" | "ttlMs" | "cacheScope"));
    assert_eq!(object(&legacy), Some(wanted));
});

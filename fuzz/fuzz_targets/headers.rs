//! Arguments in headers: every text survives, and written headers match their arguments.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ostler_wire::headers::{decode_value, encode_value, param_header_values, param_headers};

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    let encoded = encode_value(&text);
    assert!(encoded.bytes().all(|byte| matches!(byte, b' '..=b'~')), "a header can carry it");
    assert_eq!(decode_value(&encoded).as_deref(), Ok(&*text));
    let _ = decode_value(&text)
        .map(|decoded| assert_eq!(decode_value(&encode_value(&decoded)).as_deref(), Ok(&*decoded)));

    // A schema, a blank line, and arguments.
    let (schema, arguments) = text.split_once("\n\n").unwrap_or((&text, "{}"));
    let Ok(headers) = param_headers(schema.as_bytes()) else { return };
    for (name, value) in param_header_values(&headers, Some(arguments.as_bytes())) {
        let header = headers.iter().find(|header| header.name == name).expect("it comes from one of them");
        assert_eq!(header.matches_argument(&value, arguments.as_bytes()), Ok(true), "{name}: {value}");
        assert!(name.starts_with("Mcp-Param-") && http::HeaderName::try_from(&name).is_ok(), "{name}");
        assert!(http::HeaderValue::try_from(&value).is_ok(), "{value:?}");
    }
});

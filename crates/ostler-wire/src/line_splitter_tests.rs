use proptest::prelude::*;

use super::*;

/// Feeds `input` in reads of the given sizes (in turn), as a reader would: never beyond the room in the
/// buffer.
fn split(input: &[u8], cap: usize, reads: &[usize]) -> (Vec<Frame>, u64, usize) {
    let mut splitter = LineSplitter::new(cap);
    let (mut frames, mut largest, mut rest) = (Vec::new(), 0, input);
    for size in reads.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let buffer = splitter.buffer();
        let room = buffer.capacity() - buffer.len();
        let (chunk, later) = rest.split_at((*size).clamp(1, room).min(rest.len()));
        buffer.extend_from_slice(chunk);
        rest = later;
        frames.extend(std::iter::from_fn(|| splitter.next_frame()));
        largest = largest.max(splitter.buffer.capacity());
    }
    frames.extend(std::iter::from_fn(|| splitter.finish()));
    (frames, splitter.blank_lines(), largest)
}

fn line(text: &str) -> Frame {
    Frame::Line(Bytes::copy_from_slice(text.as_bytes()))
}

fn oversize(id: Option<u64>) -> Frame {
    Frame::Oversize(Oversize { answered_id: id.map(RequestId::from), request_id: None })
}

fn own_request(id: u64) -> Frame {
    Frame::Oversize(Oversize { answered_id: None, request_id: Some(RequestId::from(id)) })
}

#[test]
fn lines_come_without_their_ends_and_blank_ones_are_counted() {
    let (frames, blank, _) = split(b"a\n\n \t\r\nb\r\n\r\nc", 10, &[3]);
    assert_eq!(frames, [line("a"), line("b"), line("c")]);
    assert_eq!(blank, 3);
}

#[test]
fn a_line_may_be_as_long_as_the_cap_and_not_longer() {
    let (frames, ..) = split(b"12345\n123456\n1\n", 5, &[100]);
    assert_eq!(frames, [line("12345"), oversize(None), line("1")]);
    let (frames, ..) = split(b"123456", 5, &[1]);
    assert_eq!(frames, [oversize(None)]);
    let (frames, ..) = split(b"\n1\n", 0, &[1]);
    assert_eq!(frames, [oversize(None)]);
}

#[test]
fn an_oversize_request_is_reported_with_its_id_wherever_that_stands() {
    let long = "x".repeat(100);
    let lines = [
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"id":9,"text":"{long}"}}}}"#),
        format!(r#"{{"method":"tools/call","params":{{"text":"{long}","method":"x"}},"id":2}}"#),
        format!(r#"{{"method":"notifications/progress","params":{{"id":9,"text":"{long}"}}}}"#),
        format!(r#"{{"method":"tools/call","result":"{long}","id":4}}"#),
        r#"{"id":5,"method":"ping"}"#.to_owned(),
    ];
    let (frames, _, largest) = split(format!("{}\n", lines.join("\n")).as_bytes(), 64, &[10]);
    assert_eq!(frames, [own_request(1), own_request(2), oversize(None), oversize(None), line(&lines[4])]);
    assert!(largest <= READ_CHUNK + 64, "{largest}");
}

#[test]
fn a_cap_that_changes_counts_for_the_next_line() {
    let mut splitter = LineSplitter::new(100);
    splitter.buffer().extend_from_slice(b"123456");
    assert_eq!(splitter.next_frame(), None);
    splitter.set_cap(4);
    splitter.buffer().extend_from_slice(b"7\n1234\n");
    assert_eq!([splitter.next_frame(), splitter.next_frame()], [Some(oversize(None)), Some(line("1234"))]);
    splitter.set_cap(5);
    splitter.buffer().extend_from_slice(b"12345\n");
    assert_eq!(splitter.next_frame(), Some(line("12345")));
}

#[test]
fn an_oversize_answer_is_reported_as_soon_as_its_id_is_known() {
    let mut splitter = LineSplitter::new(64);
    splitter.buffer().extend_from_slice(br#"{"jsonrpc":"2.0","id":17,"result":{"content":[{"text":""#);
    assert_eq!(splitter.next_frame(), None);
    splitter.buffer().extend_from_slice(&[b'x'; 100]);
    assert_eq!(splitter.next_frame(), Some(oversize(Some(17))));
    for _ in 0..1000 {
        splitter.buffer().extend_from_slice(&[b'x'; 1000]);
        assert_eq!(splitter.next_frame(), None);
        assert!(splitter.buffer.capacity() <= READ_CHUNK);
    }
    splitter.buffer().extend_from_slice(b"\"}]}}\nnext\n");
    assert_eq!(splitter.next_frame(), Some(line("next")));
    assert_eq!(splitter.finish(), None);
}

#[test]
fn an_id_behind_the_content_is_found_and_a_nested_one_is_not() {
    let filler = "x".repeat(100);
    let input = format!(
        "{{\"result\":{{\"id\":3,\"t\":\"{filler}\"}},\"id\":17}}\n{{\"result\":{{\"t\":\"{filler}\",\"id\":3}}}}\nok"
    );
    for reads in [1, 7, 1000] {
        let (frames, ..) = split(input.as_bytes(), 50, &[reads]);
        assert_eq!(frames, [oversize(Some(17)), oversize(None), line("ok")]);
    }
}

#[test]
fn what_stands_behind_an_oversize_object_is_a_line_of_its_own() {
    let huge = |id: u64| format!(r#"{{"id":{id},"result":{{"t":["{}"]}}}}"#, "x".repeat(100));
    let late = format!(r#"{{"result":{{"t":"{}"}},"id":4}}"#, "x".repeat(100));
    let request = format!(r#"{{"id":9,"method":"x","params":"{}"}}"#, "x".repeat(100));
    let small = r#"{"id":5,"result":{}}"#;
    let garbage = "x".repeat(100);
    let table = [
        (format!("{}{small}\n", huge(1)), vec![oversize(Some(1)), line(small)], 0),
        (format!("{} \t{small}\n", huge(1)), vec![oversize(Some(1)), line(small)], 0),
        (format!("{}\r\n\n{small}", huge(1)), vec![oversize(Some(1)), line(small)], 1),
        (
            format!("{}{}{late}{request}{small}\n", huge(1), huge(2)),
            vec![oversize(Some(1)), oversize(Some(2)), oversize(Some(4)), own_request(9), line(small)],
            0,
        ),
        (format!("{}x\n{small}\n", huge(1)), vec![oversize(Some(1)), line("x"), line(small)], 0),
        (format!("{garbage}{}{small}\n{small}", huge(1)), vec![oversize(None), line(small)], 0),
        (
            format!("{{\"id\":1,\"result\":{}]{small}\n{small}", "1".repeat(100)),
            vec![oversize(Some(1)), line(small)],
            0,
        ),
        (huge(1), vec![oversize(Some(1))], 0),
    ];
    for (input, expected, blank) in table {
        for reads in [1, 7, 1000] {
            let (frames, blank_lines, _) = split(input.as_bytes(), 50, &[reads]);
            assert_eq!((frames, blank_lines), (expected.clone(), blank), "{input}");
        }
    }
}

#[test]
fn small_objects_that_make_a_line_too_long_are_reported_one_by_one() {
    let input = r#"{"id":1,"result":1}{"id":2,"method":"x"}{"id":3,"result":1}{"id":4,"result":1}"#;
    for reads in [1, 7, 1000] {
        let (frames, ..) = split(input.as_bytes(), 50, &[reads]);
        let expected = [oversize(Some(1)), own_request(2), oversize(Some(3)), line(r#"{"id":4,"result":1}"#)];
        assert_eq!(frames, expected);
    }
}

#[test]
fn an_endless_line_ends_with_the_stream() {
    let (frames, _, largest) = split(&[b'['; 300_000], 1000, &[READ_CHUNK]);
    assert_eq!(frames, [oversize(None)]);
    assert!(largest <= 1000 + READ_CHUNK);
}

#[test]
fn the_memory_of_a_long_line_is_given_back() {
    let cap = 1 << 20;
    let mut splitter = LineSplitter::new(cap);
    let mut long = vec![b'x'; cap];
    long.push(b'\n');
    let mut rest = &long[..];
    while !rest.is_empty() {
        let buffer = splitter.buffer();
        let room = (buffer.capacity() - buffer.len()).min(rest.len());
        buffer.extend_from_slice(&rest[..room]);
        assert!(buffer.capacity() <= cap + READ_CHUNK);
        rest = &rest[room..];
        if !rest.is_empty() {
            assert_eq!(splitter.next_frame(), None);
        }
    }
    assert!(matches!(splitter.next_frame(), Some(Frame::Line(line)) if line.len() == cap));
    assert_eq!(splitter.buffer.capacity(), 0);
}

#[test]
fn a_buffer_whose_lines_are_gone_is_used_again() {
    let mut splitter = LineSplitter::new(1 << 20);
    let first = splitter.buffer().as_ptr();
    for _ in 0..100 {
        let buffer = splitter.buffer();
        let room = buffer.capacity() - buffer.len();
        buffer.extend_from_slice(&vec![b'x'; room.min(5000)]);
        buffer.truncate(buffer.len() - 1);
        buffer.extend_from_slice(b"\n");
        drop(splitter.next_frame());
    }
    assert_eq!(splitter.allocated, READ_CHUNK);
    assert!(splitter.buffer().as_ptr() as usize - first as usize <= READ_CHUNK);
}

/// Generates bytes with many line ends, blank lines and envelopes.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b" ".to_vec()),
        Just(br#"{"jsonrpc":"2.0","id":17,"result":{"#.to_vec()),
        Just(br#"},"id":18}"#.to_vec()),
        Just(br#"{"error":"\"#.to_vec()),
        Just(br#"{"id":19,"result":{"a":["}\"",{}]}}"#.to_vec()),
        Just(br#"{"result":["a long one that passes many a cap","]"],"id":20}"#.to_vec()),
        prop::sample::select(&b"{}[]\"\\"[..]).prop_map(|byte| vec![byte]),
        prop::collection::vec(any::<u8>(), 0..40),
    ];
    prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

/// Returns the frames as a reference without buffering finds them: each line, or `None` if it is too long.
fn reference(mut input: &[u8], cap: usize) -> Vec<Option<Vec<u8>>> {
    let mut frames = Vec::new();
    while !input.is_empty() {
        let newline = input.iter().position(|byte| *byte == b'\n');
        let line = &input[..newline.unwrap_or(input.len())];
        let mut end = line.len();
        if line.len() <= cap {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            frames.extend((!line.trim_ascii().is_empty()).then(|| Some(line.to_vec())));
        } else {
            end = 0;
            while end <= cap && end < line.len() {
                frames.push(None);
                end += object_length(&line[end..]).unwrap_or(line.len() - end);
            }
        }
        let has_newline = end == line.len() && newline.is_some();
        input = &input[end + usize::from(has_newline)..];
    }
    frames
}

/// Returns the length of a line's first object, with the blanks around it.
fn object_length(line: &[u8]) -> Option<usize> {
    let is_blank = |byte: &u8| b" \t\r".contains(byte);
    let (mut braces, mut brackets, mut in_string, mut escaped) = (0, 0, false, false);
    let start = line.iter().position(|byte| !is_blank(byte)).filter(|at| line[*at] == b'{')?;
    for (at, byte) in line.iter().enumerate().skip(start) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' => braces += 1,
            b'[' => brackets += 1,
            b'}' => braces -= 1,
            b']' => brackets -= 1,
            _ => {}
        }
        if brackets < 0 || (braces == 0 && brackets > 0) {
            return None;
        }
        if braces == 0 {
            return Some(at + 1 + line[at + 1..].iter().take_while(|byte| is_blank(byte)).count());
        }
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn chunking_makes_no_difference(
        input in stream(),
        cap in 0usize..80,
        reads in prop::collection::vec(1usize..50, 1..8),
    ) {
        let (frames, blank, largest) = split(&input, cap, &reads);
        let (whole, whole_blank, _) = split(&input, cap, &[usize::MAX]);
        prop_assert_eq!(&frames, &whole);
        prop_assert_eq!(blank, whole_blank);
        prop_assert!(largest <= cap + READ_CHUNK);
        let seen: Vec<_> = frames
            .into_iter()
            .map(|frame| match frame {
                Frame::Line(line) => Some(line.to_vec()),
                Frame::Oversize(_) => None,
            })
            .collect();
        prop_assert_eq!(seen, reference(&input, cap));
    }
}

proptest! {
    // Each case feeds up to a megabyte, so a few of them are enough.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn memory_is_bounded_by_the_cap_and_one_read(
        lengths in prop::collection::vec(0usize..200_000, 1..6),
        cap in 10_000usize..120_000,
        read in 1_000usize..70_000,
    ) {
        let input: Vec<u8> =
            lengths.iter().flat_map(|length| [vec![b'x'; *length], vec![b'\n']].concat()).collect();
        let (frames, _, largest) = split(&input, cap, &[read]);
        prop_assert_eq!(frames.len(), reference(&input, cap).len());
        prop_assert!(largest <= cap + READ_CHUNK);
    }
}

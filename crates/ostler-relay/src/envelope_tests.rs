use super::*;

fn id() -> CallId {
    CallId::new(1_700_000_000_000, &[9; 10])
}

fn server() -> ServerName {
    ServerName::new("s").unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn everything_that_is_said_is_understood() {
    let head = CallHead {
        call: id(),
        instance: Instance(3),
        server: server(),
        begin_by: 5,
        deadline: u64::MAX,
        manifest: Some("v".into()),
        trace: None,
    };
    assert_eq!(CallHead::read(&head.headers()), Ok(head));
    let head = ManifestHead { call: id(), instance: Instance(3) };
    assert_eq!(ManifestHead::read(&head.headers()), Ok(head));
    for control in
        [Control::Cancel, Control::Answer(7), Control::Ack(u32::MAX), Control::Resume, Control::Alive]
    {
        assert_eq!(Control::read(&control.headers(Instance(1))), Ok((control, Instance(1))));
    }
    let Ok(host) = RelayName::new("h") else { panic!("no name") };
    let accepted = RelayProgress::Accepted { host, generation: Instance(1) };
    for progress in [
        accepted,
        RelayProgress::Notification,
        RelayProgress::ServerRequest(0),
        RelayProgress::Chunk(9),
        RelayProgress::ManifestChanged,
    ] {
        assert_eq!(RelayProgress::read(&progress.headers()), Ok(progress));
    }
    for reply in [RelayReply::Answer, RelayReply::Chunked { length: 7, sha256: "ab".repeat(32) }] {
        assert_eq!(RelayReply::read(&reply.headers()), Ok(reply));
    }
    let heartbeat = Heartbeat { generation: Instance(1), time: 2, in_flight: 3, is_draining: true };
    assert_eq!(Heartbeat::read(&heartbeat.headers()), Ok(heartbeat));
}

#[test]
fn all_headers_that_are_written_are_read_from_the_wire() {
    let head = CallHead {
        call: id(),
        instance: Instance(3),
        server: server(),
        begin_by: 5,
        deadline: 6,
        manifest: Some("v".into()),
        trace: Some("t".into()),
    };
    let heartbeat = Heartbeat { generation: Instance(1), time: 2, in_flight: 3, is_draining: true };
    let chunked = RelayReply::Chunked { length: 7, sha256: "ab".repeat(32) };
    for headers in
        [head.headers(), heartbeat.headers(), chunked.headers(), Control::Ack(1).headers(Instance(1))]
    {
        assert!(headers.iter().all(|(name, _)| HEADER_NAMES.contains(&name)), "{headers:?}");
    }
}

#[test]
fn another_version_is_refused_by_name() {
    let headers = RelayHeaders::new().with(header::VERSION, "2").with(header::KIND, "answer");
    assert_eq!(RelayReply::read(&headers), Err(BadEnvelope::Version("2".into())));
    assert_eq!(RelayReply::read(&RelayHeaders::new()), Err(BadEnvelope::Missing(header::VERSION)));
    assert_eq!(Control::read(&RelayHeaders::for_kind("dance")), Err(BadEnvelope::Kind("dance".into())));
}

#[test]
fn numbers_have_one_spelling() {
    for bad in ["+1", "-1", "01", "00", "1.0", "", " 1", "4294967296"] {
        let headers = RelayHeaders::for_kind("chunk").with(header::NUMBER, bad);
        assert_eq!(RelayProgress::read(&headers), Err(BadEnvelope::Unreadable(header::NUMBER)), "{bad}");
    }
}

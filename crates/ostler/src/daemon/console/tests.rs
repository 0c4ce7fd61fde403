use std::sync::mpsc::{Receiver, channel};

use ostler_host::EjectionReason;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Returns a console, and the receiver of its lines without their times.
fn console(config: Option<&str>) -> (Arc<Console>, Receiver<String>) {
    let (said, lines) = channel();
    let say = move |text: &str| {
        let _ = said.send(text.split_once(' ').map_or_else(String::new, |(_, line)| line.to_owned()));
    };
    let console = Console {
        writer: ConsoleWriter::with_sink(say),
        style: Style::plain(),
        is_terminal: true,
        hints: Invocation::new(config.map(Path::new)),
        servers: Mutex::default(),
    };
    (Arc::new(console), lines)
}

fn hear(console: &Arc<Console>, what: LifecycleEventKind<'_>) {
    console.handle_event(&LifecycleEvent::for_server("time", what), &str::to_owned);
}

fn told(console: &Console, lines: &Receiver<String>) -> Vec<String> {
    console.close(Duration::from_secs(20));
    lines.try_iter().collect()
}

fn crash(console: &Arc<Console>, cause: &str) {
    hear(console, LifecycleEventKind::Lost { generation: 1, cause });
    hear(console, LifecycleEventKind::RestartPlanned { delay: Duration::ZERO });
}

fn recover(console: &Arc<Console>) {
    hear(console, LifecycleEventKind::Started { generation: 2, pid: None, took: SECOND });
}

#[test]
fn a_crash_and_a_recovery_are_a_line_each() {
    let (console, lines) = console(None);
    recover(&console);
    assert!(told(&console, &lines).is_empty(), "a server that simply starts is no news");
    crash(&console, "\"boom\", code 1");
    recover(&console);
    assert_eq!(
        told(&console, &lines),
        [
            "`time` stopped working: \"boom\", code 1; it is started again now (`ostler logs time`)",
            "`time` works again, started in 1s",
        ]
    );
}

#[test]
fn a_server_that_is_given_up_is_told_with_what_to_do() {
    let (console, lines) = console(Some("my configs/a.toml"));
    let cause = "program `npxx` was not found";
    let (ejection, readmit_in) = (EjectionReason::Permanent, None);
    hear(&console, LifecycleEventKind::StartFailed { generation: 1, cause });
    let remedy = Some("did you mean `npx`? correct `command` of `time`");
    hear(&console, LifecycleEventKind::Ejected { ejection, cause, remedy, readmit_in });
    assert_eq!(
        told(&console, &lines),
        [
            "`time` can't be used: program `npxx` was not found; it is not tried again until it is reloaded or its config \
          changes (did you mean `npx`? correct `command` of `time`, then `ostler reload time --config 'my configs/a.toml'`)"
        ]
    );
}

#[test]
fn a_failure_that_repeats_is_told_once_until_it_is_another_or_over() {
    let (console, lines) = console(None);
    let fail = |cause| {
        hear(&console, LifecycleEventKind::StartFailed { generation: 1, cause });
        hear(&console, LifecycleEventKind::NeedsAuth { cause, retry_in: 60 * SECOND });
    };
    fail("the server answered HTTP 401");
    fail("the server answered HTTP 401");
    fail("the server answered HTTP 403");
    recover(&console);
    fail("the server answered HTTP 403");
    let told = told(&console, &lines);
    assert_eq!(told.len(), 4, "{told:#?}");
    assert_eq!(
        told[0],
        "`time` needs sign-in: the server answered HTTP 401; it is asked again in 1m (put valid credentials into its \
         `headers`, then `ostler reload time`)"
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_flaps_is_summed_up() {
    let (console, lines) = console(None);
    for _ in 0..50 {
        crash(&console, "code 1");
        recover(&console);
    }
    assert_eq!(told(&console, &lines).len(), 10);
    tokio::time::sleep(61 * SECOND).await;
    assert_eq!(
        told(&console, &lines),
        [
            "`time`: 90 more in this minute (`ostler audit --server time`), the last: `time` works again, started in 1s"
        ]
    );
    crash(&console, "code 1");
    assert_eq!(told(&console, &lines).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn definitions_that_are_not_approved_share_a_line() {
    let (console, lines) = console(None);
    for tool in ["a", "b", "c", "d", "e"] {
        hear(
            &console,
            LifecycleEventKind::DefinitionChanged { tool, pin_status: "changed", is_refused: true },
        );
    }
    tokio::time::sleep(SECOND).await;
    assert_eq!(
        told(&console, &lines),
        [
            "`time`: `a`, `b`, `c` and 2 more are not what was approved, so they are refused (`ostler diff time`, then \
          `ostler approve time`)"
        ]
    );
}

#[test]
fn words_of_servers_can_not_forge_lines_or_show_secrets() {
    let (console, lines) = console(None);
    let cause = format!("\u{1b}[2Jhunter2\nready {}", "x".repeat(1_000));
    let hide = |text: &str| text.replace("hunter2", "…");
    console.handle_event(
        &LifecycleEvent::for_server("time", LifecycleEventKind::Lost { generation: 1, cause: &cause }),
        &hide,
    );
    hear(&console, LifecycleEventKind::RestartPlanned { delay: 500 * SECOND / 1_000 });
    let told = told(&console, &lines);
    assert!(told[0].starts_with("`time` stopped working: \\u{1b}[2J…\\nready xxx"), "{told:?}");
    assert!(told[0].ends_with("x…; it is started again in 500ms (`ostler logs time`)"), "{told:?}");
    assert!(told[0].chars().count() < 400, "{told:?}");
}

#[test]
fn a_console_that_nobody_reads_holds_nothing_up() {
    let (hold, held) = channel::<()>();
    let writer = ConsoleWriter::with_sink(move |_| {
        let _ = held.recv();
    });
    for _ in 0..10_000 {
        writer.write("x".into());
    }
    drop(hold);
}

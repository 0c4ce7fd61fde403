//! The embedding example.

use std::process::{Command, Output};

use ostler_testkit::{example, fake_mcp};

fn embed(args: &[&str]) -> Output {
    let fake = fake_mcp();
    Command::new(example("embed")).args([args[0], fake.to_str().unwrap()]).args(&args[1..]).output().unwrap()
}

fn lines(output: &Output, word: &str) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter_map(|line| line.strip_prefix(word)).map(str::to_owned).collect()
}

#[test]
fn the_example_lists_and_calls_until_its_budget_is_spent() {
    let output = embed(&["echo"]);
    assert!(output.status.success(), "{output:?}");
    assert!(lines(&output, "tool ").contains(&"server__echo".to_owned()));
    let answers: Vec<String> = (1..=5).map(|turn| format!(r#"{{"turn":{turn}}}"#)).collect();
    assert_eq!(lines(&output, "answer "), answers);
}

#[test]
fn the_example_goes_on_after_a_crash_and_does_not_repeat_the_call() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger");
    let output = embed(&["crash", "--ledger", ledger.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(lines(&output, "unsure ").len(), 5, "{output:?}");
    assert_eq!(ostler_testkit::read_lines(&ledger).len(), 5, "each call ran once");
}

#[test]
fn the_example_tells_what_it_cannot_do() {
    let output = embed(&["no_such_tool"]);
    assert!(output.status.success(), "{output:?}");
    let failed = lines(&output, "failed ");
    assert!(failed[0].contains("unknown tool"), "{output:?}");
    assert!(!Command::new(example("embed")).output().unwrap().status.success());
}

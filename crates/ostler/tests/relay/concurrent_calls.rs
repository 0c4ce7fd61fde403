//! Concurrent calls through one worker.

use std::collections::HashMap;
use std::time::Instant;

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::home::Home;
use crate::site::{Setup, worker};

/// Returns the next answer, and the id of its request.
fn next_answer(agent: &mut Agent) -> (u64, Value) {
    loop {
        let message = agent.hear();
        if let Some(id) = message["id"].as_u64() {
            return (id, message);
        }
    }
}

/// Returns this many next answers, by the ids of their requests.
fn answers(agent: &mut Agent, count: usize) -> HashMap<u64, Value> {
    let answers: HashMap<u64, Value> = (0..count).map(|_| next_answer(agent)).collect();
    assert_eq!(answers.len(), count, "somebody was answered twice");
    answers
}

#[test]
fn each_of_many_calls_at_once_gets_its_own_answer() {
    let (broker, sites) = Setup { args: &["--shuffle"], ..Setup::default() }.build();
    let (far, _daemon) = (Home::new(), sites[0].start());
    let mut agent = Agent::start_as(worker(&far, &broker, "w1"));
    agent.hello();
    for count in [8, 256] {
        let began = Instant::now();
        let params = |n: u64| json!({"name": "fake__echo", "arguments": {"n": n, "of": count}});
        let calls: Vec<(u64, u64)> = (0..count).map(|n| (n, agent.begin("tools/call", params(n)))).collect();
        let answers = answers(&mut agent, calls.len());
        for (n, id) in calls {
            let answer = &answers[&id];
            assert_eq!(answer["result"]["structuredContent"], json!({"n": n, "of": count}), "{answer}");
        }
        println!("{count} calls at once took {:.1?}", began.elapsed());
    }
    assert_eq!(sites[0].ledger().len(), 8 + 256);
}

#[test]
fn calls_that_take_a_while_overlap() {
    let (broker, sites) = Setup::default().build();
    let (far, _daemon) = (Home::new(), sites[0].start());
    let mut agent = Agent::start_as(worker(&far, &broker, "w1"));
    agent.hello();
    agent.call("fake__echo", json!({}));
    let mut begin =
        |ms: u64| agent.begin("tools/call", json!({"name": "fake__sleep", "arguments": {"ms": ms}}));
    // In sequence they would end in the order in which they began.
    let longest_first = [900, 600, 300].map(&mut begin);
    let order: Vec<u64> = (0..3).map(|_| next_answer(&mut agent).0).collect();
    assert!(order.iter().rev().eq(&longest_first), "{order:?} {longest_first:?}");
}

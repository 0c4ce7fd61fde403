//! Who stays and who has to leave, under paused time.

use std::time::Duration;

use super::*;
use crate::server::Privilege;
use crate::server::connection::TENURE;

const MIB: usize = 1 << 20;

fn table() -> Arc<ConnectionTable> {
    Arc::new(ConnectionTable::new(&Limits { max_unread: 3 * MIB, ..Limits::default() }))
}

/// A connection that owes so much and has to be waited for.
fn slow(table: &Arc<ConnectionTable>, owed: usize) -> Arc<Connection> {
    let connection = table.take().unwrap();
    connection.wrote(None);
    if owed > 0 {
        connection.owes(owed);
    }
    connection
}

#[tokio::test(start_paused = true)]
async fn whoever_reads_on_stays_and_whoever_takes_nothing_leaves() {
    let table = table();
    let steady = slow(&table, 2 * MIB);
    let behind = slow(&table, 0);
    tokio::time::advance(Duration::from_secs(5)).await;
    let silent = slow(&table, MIB);
    tokio::time::advance(Duration::from_secs(5)).await;
    steady.wrote(Some(MIB / 2));
    let _last = slow(&table, MIB);
    assert!(silent.is_evicted());
    assert!(!steady.is_evicted(), "it reads");
    assert!(!behind.is_evicted(), "nothing would come of it");
}

#[tokio::test(start_paused = true)]
async fn a_client_idles_only_once_it_has_taken_its_answer() {
    let table = table();
    let limits = Limits::default();
    let connection = table.take().unwrap();
    let busy = connection.begin().unwrap();
    connection.wrote(None);
    drop(busy);
    for _ in 0..10 {
        tokio::time::advance(limits.write_timeout / 2).await;
        connection.wrote(Some(MIB));
        table.sweep(Instant::now(), &limits);
    }
    connection.flushed();
    table.sweep(Instant::now(), &limits);
    assert!(!connection.is_evicted());
    tokio::time::advance(limits.idle_timeout).await;
    table.sweep(Instant::now(), &limits);
    assert!(connection.is_evicted());
}

#[tokio::test(start_paused = true)]
async fn newcomers_evict_no_operator_between_its_proof_and_its_request() {
    let limits = Limits { max_connections: 1, reserved_connections: 2, ..Limits::default() };
    let table = Arc::new(ConnectionTable::new(&limits));
    let ordinary = table.take().unwrap();
    let _busy = ordinary.begin().unwrap();
    let operator = table.take().unwrap();
    let proving = operator.begin().unwrap();
    assert!(operator.is_reserved() && operator.may_ask(Privilege::Full));
    drop(proving);
    let mut strangers = Vec::new();
    for _ in 0..100 {
        let stranger = table.take().unwrap();
        let asking = stranger.begin().unwrap();
        assert!(stranger.may_ask(Privilege::Prelude), "a prelude shows no knowledge of the token");
        drop(asking);
        assert!(!operator.is_evicted());
        strangers.push(stranger);
    }
    let other = table.take().unwrap();
    let proving = other.begin().unwrap();
    assert!(other.may_ask(Privilege::Full));
    drop(proving);
    assert!(table.take().is_none(), "both are operators'");
    tokio::time::advance(TENURE).await;
    let _newcomer = table.take().unwrap();
    assert!(operator.is_evicted(), "it idles");
}

//! Admission and eviction of connections, under paused time.

use std::time::Duration;

use super::*;
use crate::server::Privilege;
use crate::server::connection::{RESERVATION_TIME, STALL_GRACE};

const MIB: usize = 1 << 20;

fn table() -> Arc<ConnectionTable> {
    Arc::new(ConnectionTable::new(&ConnectionLimits { max_unread: 3 * MIB, ..ConnectionLimits::default() }))
}

/// Returns a stalled connection that owes that many bytes.
fn slow(table: &Arc<ConnectionTable>, owed: usize) -> Arc<HttpConnection> {
    let connection = table.admit().unwrap();
    connection.note_write(None);
    if owed > 0 {
        connection.add_unread(owed);
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
    steady.note_write(Some(MIB / 2));
    let _last = slow(&table, MIB);
    assert!(silent.is_evicted());
    assert!(!steady.is_evicted(), "it reads");
    assert!(!behind.is_evicted(), "nothing would come of it");
}

#[tokio::test(start_paused = true)]
async fn a_client_idles_only_once_it_has_taken_its_answer() {
    let table = table();
    let limits = ConnectionLimits::default();
    let connection = table.admit().unwrap();
    let busy = connection.begin_request().unwrap();
    connection.note_write(None);
    drop(busy);
    for _ in 0..10 {
        tokio::time::advance(limits.write_timeout / 2).await;
        connection.note_write(Some(MIB));
        table.sweep(Instant::now(), &limits);
    }
    connection.note_flush();
    table.sweep(Instant::now(), &limits);
    assert!(!connection.is_evicted());
    tokio::time::advance(limits.idle_timeout).await;
    table.sweep(Instant::now(), &limits);
    assert!(connection.is_evicted());
}

#[tokio::test(start_paused = true)]
async fn newcomers_evict_no_operator_between_its_proof_and_its_request() {
    let limits =
        ConnectionLimits { max_connections: 1, reserved_connections: 2, ..ConnectionLimits::default() };
    let table = Arc::new(ConnectionTable::new(&limits));
    let ordinary = table.admit().unwrap();
    let _busy = ordinary.begin_request().unwrap();
    let operator = table.admit().unwrap();
    let proving = operator.begin_request().unwrap();
    assert!(operator.is_reserved() && operator.may_serve(Privilege::Full));
    drop(proving);
    let mut strangers = Vec::new();
    for _ in 0..100 {
        let stranger = table.admit().unwrap();
        let asking = stranger.begin_request().unwrap();
        assert!(stranger.may_serve(Privilege::Prelude), "a prelude shows no knowledge of the token");
        drop(asking);
        assert!(!operator.is_evicted());
        strangers.push(stranger);
    }
    let other = table.admit().unwrap();
    let proving = other.begin_request().unwrap();
    assert!(other.may_serve(Privilege::Full));
    drop(proving);
    assert!(table.admit().is_none(), "both are operators'");
    tokio::time::advance(RESERVATION_TIME).await;
    let _newcomer = table.admit().unwrap();
    assert!(operator.is_evicted(), "it idles");
}

/// Returns a connection whose last answer is not read.
fn stalled(table: &Arc<ConnectionTable>, serves_caller: bool) -> Arc<HttpConnection> {
    let connection = table.admit().unwrap();
    let mut busy = connection.begin_request().unwrap();
    busy.set_serves_caller(serves_caller);
    connection.note_write(None);
    drop(busy);
    connection
}

#[tokio::test(start_paused = true)]
async fn newcomers_evict_strangers_that_do_not_read_the_one_first_that_has_taken_nothing_for_longest() {
    let limits = ConnectionLimits { max_connections: 3, ..ConnectionLimits::default() };
    let table = Arc::new(ConnectionTable::new(&limits));
    let caller = stalled(&table, true);
    tokio::time::advance(Duration::from_millis(500)).await;
    let (steady, silent) = (stalled(&table, false), stalled(&table, false));
    tokio::time::advance(Duration::from_millis(100)).await;
    steady.note_write(Some(1));
    let _served: Vec<_> = (0..2)
        .map(|evicted| {
            let newcomer = table.admit().expect("a stranger makes room");
            assert_eq!([silent.is_evicted(), steady.is_evicted()], [true, evicted == 1]);
            (newcomer.begin_request().unwrap(), newcomer)
        })
        .collect();
    assert!(table.admit().is_none() && !caller.is_evicted(), "a caller may be slow");
    tokio::time::advance(STALL_GRACE).await;
    table.admit().expect("a caller that takes nothing makes room, too");
    assert!(caller.is_evicted());
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_evicts_no_connection_whose_request_is_under_way() {
    let limits = ConnectionLimits { max_connections: 1, ..ConnectionLimits::default() };
    let table = Arc::new(ConnectionTable::new(&limits));
    let connection = table.admit().unwrap();
    let _busy = connection.begin_request().unwrap();
    connection.note_write(None);
    tokio::time::advance(STALL_GRACE).await;
    assert!(table.admit().is_none() && !connection.is_evicted());
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_stream_counts_as_unread_until_the_stream_takes_it() {
    let table = table();
    let (one, other) = (slow(&table, 0), slow(&table, 0));
    let waiting = other.backlog().add(2 * MIB).unwrap();
    other.note_flush();
    assert_eq!(table.unread_bytes(), 2 * MIB, "it was not given to the socket");
    drop(waiting);
    assert_eq!(table.unread_bytes(), 0);
    let waiting = [one.backlog().add(2 * MIB).unwrap(), one.backlog().add(2 * MIB).unwrap()];
    assert!(one.is_evicted() && !other.is_evicted());
    drop(waiting);
    assert_eq!(table.unread_bytes(), 0, "it is counted out once");
}

#[tokio::test(start_paused = true)]
async fn a_part_counts_as_a_whole_until_its_last_byte_is_taken() {
    let table = table();
    let connection = slow(&table, MIB);
    connection.add_unread(MIB / 2);
    connection.note_write(Some(MIB - 1));
    assert_eq!(table.unread_bytes(), MIB + MIB / 2, "all of it is in memory");
    connection.note_write(Some(2));
    assert_eq!(table.unread_bytes(), MIB / 2);
    connection.note_write(Some(MIB / 2 - 1));
    assert_eq!(table.unread_bytes(), 0);
}

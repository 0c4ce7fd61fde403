//! Who stays and who has to leave, under paused time.

use super::*;

const MIB: usize = 1 << 20;

fn seats() -> Arc<Seats> {
    Arc::new(Seats::new(&Limits { max_unread: 3 * MIB, ..Limits::default() }))
}

/// A connection that owes so much and has to be waited for.
fn slow(seats: &Arc<Seats>, owed: usize) -> Arc<Seat> {
    let seat = seats.take().unwrap();
    seat.wrote(None);
    if owed > 0 {
        seat.owes(owed);
    }
    seat
}

#[tokio::test(start_paused = true)]
async fn whoever_reads_on_stays_and_whoever_takes_nothing_leaves() {
    let seats = seats();
    let steady = slow(&seats, 2 * MIB);
    let behind = slow(&seats, 0);
    tokio::time::advance(Duration::from_secs(5)).await;
    let silent = slow(&seats, MIB);
    tokio::time::advance(Duration::from_secs(5)).await;
    steady.wrote(Some(MIB / 2));
    let _last = slow(&seats, MIB);
    assert!(silent.is_evicted());
    assert!(!steady.is_evicted(), "it reads");
    assert!(!behind.is_evicted(), "nothing would come of it");
}

#[tokio::test(start_paused = true)]
async fn a_client_idles_only_once_it_has_taken_its_answer() {
    let seats = seats();
    let limits = Limits::default();
    let seat = seats.take().unwrap();
    let busy = seat.begin().unwrap();
    seat.wrote(None);
    drop(busy);
    for _ in 0..10 {
        tokio::time::advance(limits.write_timeout / 2).await;
        seat.wrote(Some(MIB));
        seats.sweep(Instant::now(), &limits);
    }
    seat.flushed();
    seats.sweep(Instant::now(), &limits);
    assert!(!seat.is_evicted());
    tokio::time::advance(limits.idle_timeout).await;
    seats.sweep(Instant::now(), &limits);
    assert!(seat.is_evicted());
}

#[tokio::test(start_paused = true)]
async fn newcomers_evict_no_operator_between_its_proof_and_its_request() {
    let limits = Limits { max_connections: 1, reserved_connections: 2, ..Limits::default() };
    let seats = Arc::new(Seats::new(&limits));
    let ordinary = seats.take().unwrap();
    let _busy = ordinary.begin().unwrap();
    let operator = seats.take().unwrap();
    let proving = operator.begin().unwrap();
    assert!(operator.is_reserved() && operator.may_ask(Privilege::Full));
    drop(proving);
    let mut strangers = Vec::new();
    for _ in 0..100 {
        let stranger = seats.take().unwrap();
        let asking = stranger.begin().unwrap();
        assert!(stranger.may_ask(Privilege::Prelude), "a prelude shows no knowledge of the token");
        drop(asking);
        assert!(!operator.is_evicted());
        strangers.push(stranger);
    }
    let other = seats.take().unwrap();
    let proving = other.begin().unwrap();
    assert!(other.may_ask(Privilege::Full));
    drop(proving);
    assert!(seats.take().is_none(), "both are operators'");
    tokio::time::advance(TENURE).await;
    let _newcomer = seats.take().unwrap();
    assert!(operator.is_evicted(), "it idles");
}

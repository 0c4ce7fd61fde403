//! A daemon at rest takes little memory.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// Starting up is over when nothing was computed for this long.
const SETTLED: Duration = Duration::from_secs(1);

/// A daemon that has computed nothing for this long is at rest. What is shed
/// then comes back page by page with the next call, which costs it a fraction
/// of a millisecond; so this is long.
const AT_REST: Duration = Duration::from_secs(10);

/// Less than this is the ticking of clocks, ours included.
const NOTHING: Duration = Duration::from_millis(2);

/// Gives back what was freed and sheds the program's code, after the start and
/// whenever the daemon comes to rest.
pub(super) async fn run() {
    let mut quiet = SETTLED;
    loop {
        // Whatever was computed meanwhile brings a new round.
        while used_within(quiet).await > NOTHING {}
        ostler_host::guard::trim_heap();
        ostler_host::guard::shed_code();
        quiet = AT_REST;
        while used_within(quiet).await <= NOTHING {}
    }
}

/// Processor time that the process has used in the time to come.
async fn used_within(time: Duration) -> Duration {
    let before = used();
    tokio::time::sleep(time).await;
    used().saturating_sub(before)
}

fn used() -> Duration {
    getrusage(UsageWho::RUSAGE_SELF).map_or(Duration::ZERO, |usage| {
        let micros = (usage.user_time() + usage.system_time()).num_microseconds();
        Duration::from_micros(u64::try_from(micros).unwrap_or_default())
    })
}

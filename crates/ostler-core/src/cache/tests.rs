use super::*;
use crate::test_clock::{at, ms};

fn name(text: &str) -> ServerName {
    ServerName::new(text).unwrap()
}

fn key(server: &str, subject: &str, params: &str) -> CacheKey {
    CacheKey {
        server: name(server),
        spec: 1,
        method: "tools/call",
        subject: subject.into(),
        params: Bytes::copy_from_slice(params.as_bytes()),
    }
}

fn fresh(body: &str, ttl: u64, scope: CacheVisibility) -> CacheableResult {
    CacheableResult { body: Bytes::copy_from_slice(body.as_bytes()), ttl: ms(ttl), scope }
}

fn cache(per_subject: usize, max_bytes: usize) -> Cache {
    Cache::new(CacheLimits { per_subject, max_bytes, ..CacheLimits::default() })
}

/// Takes an epoch and stores at once. Returns whether the answer was stored.
fn put(cache: &mut Cache, key: &CacheKey, principal: &str, fresh: CacheableResult) -> bool {
    let epoch = cache.epoch(&key.server);
    cache.store(epoch, key.clone(), principal, fresh, at(0))
}

fn body(cache: &mut Cache, key: &CacheKey, principal: &str, now: u64) -> Option<Bytes> {
    cache.lookup(key, principal, at(now)).map(|hit| hit.body)
}

#[test]
fn a_private_answer_is_its_callers_alone_and_a_public_one_everybodys() {
    let mut cache = cache(64, 1 << 20);
    let (own, shared) = (key("time", "now", "1"), key("time", "now", "2"));
    put(&mut cache, &own, "ada", fresh("own", 100, CacheVisibility::Private));
    put(&mut cache, &shared, "ada", fresh("shared", 100, CacheVisibility::Public));
    assert_eq!(body(&mut cache, &own, "ada", 0).unwrap(), "own");
    assert_eq!(body(&mut cache, &own, "bob", 0), None);
    assert_eq!(body(&mut cache, &shared, "bob", 0).unwrap(), "shared");
}

#[test]
fn private_answers_of_one_owner_are_purged_alone() {
    let mut cache = cache(64, 1 << 20);
    let (own, shared) = (key("time", "now", "1"), key("time", "now", "2"));
    put(&mut cache, &own, "ada", fresh("adas", 100, CacheVisibility::Private));
    put(&mut cache, &own, "bob", fresh("bobs", 100, CacheVisibility::Private));
    put(&mut cache, &shared, "ada", fresh("shared", 100, CacheVisibility::Public));
    cache.purge_owners(|owner| owner == "ada");
    assert_eq!(body(&mut cache, &own, "ada", 0), None);
    assert_eq!(body(&mut cache, &own, "bob", 0).unwrap(), "bobs");
    assert_eq!(body(&mut cache, &shared, "ada", 0).unwrap(), "shared");
    assert_eq!(cache.stats().entries, 2);
}

#[test]
fn no_part_of_the_key_is_overlooked() {
    let mut cache = cache(64, 1 << 20);
    let stored = key("time", "now", "{}");
    put(&mut cache, &stored, "ada", fresh("x", 100, CacheVisibility::Public));
    let others = [
        CacheKey { server: name("timer"), ..stored.clone() },
        CacheKey { spec: 2, ..stored.clone() },
        CacheKey { method: "resources/read", ..stored.clone() },
        CacheKey { subject: "no".into(), ..stored.clone() },
        CacheKey { params: Bytes::from_static(b"{ }"), ..stored.clone() },
    ];
    for other in others {
        assert_eq!(body(&mut cache, &other, "ada", 0), None, "{other:?}");
    }
    assert!(body(&mut cache, &stored, "ada", 0).is_some());
}

#[test]
fn an_answer_is_fresh_from_its_receipt_until_its_time_is_over() {
    let mut cache = cache(64, 1 << 20);
    let key = key("time", "now", "");
    let epoch = cache.epoch(&key.server);
    assert!(cache.store(epoch, key.clone(), "ada", fresh("x", 100, CacheVisibility::Private), at(5_000)));
    let hit = cache.lookup(&key, "ada", at(5_099)).unwrap();
    assert_eq!((hit.remaining, hit.scope), (ms(1), CacheVisibility::Private));
    assert_eq!(cache.lookup(&key, "ada", at(5_100)), None);
    assert_eq!(cache.stats(), CacheStats { entries: 0, bytes: 0, hits: 1, misses: 1 });
}

#[test]
fn a_long_life_is_cut_and_none_is_not_stored() {
    let mut cache = cache(64, 1 << 20);
    let key = key("time", "now", "");
    assert!(!put(&mut cache, &key, "ada", fresh("x", 0, CacheVisibility::Private)));
    assert!(put(
        &mut cache,
        &key,
        "ada",
        CacheableResult { ttl: Duration::MAX, ..fresh("x", 0, CacheVisibility::Private) }
    ));
    assert_eq!(cache.lookup(&key, "ada", at(0)).unwrap().remaining, Duration::from_secs(86_400));
}

#[test]
fn an_answer_asked_for_before_an_invalidation_is_not_stored() {
    type Invalidation = fn(&mut Cache, &ServerName);
    let invalidations: [Invalidation; 4] = [
        |cache, server| cache.purge_server(server),
        |cache, server| cache.purge_method(server, "tools/list"),
        |cache, server| cache.remove_server(server),
        |cache, server| {
            cache.remove_server(server);
            let _ = cache.lookup(&key("time", "now", ""), "ada", at(0));
        },
    ];
    for (is_known, invalidate) in
        [false, true].into_iter().flat_map(|known| invalidations.map(|i| (known, i)))
    {
        let mut cache = cache(64, 1 << 20);
        let key = key("time", "now", "");
        if is_known {
            put(&mut cache, &key, "ada", fresh("old", 100, CacheVisibility::Private));
        }
        let epoch = cache.epoch(&key.server);
        invalidate(&mut cache, &key.server);
        assert!(!cache.store(epoch, key.clone(), "ada", fresh("late", 100, CacheVisibility::Private), at(0)));
        assert!(put(&mut cache, &key, "ada", fresh("new", 100, CacheVisibility::Private)));
    }
}

#[test]
fn an_invalidation_of_another_server_does_not_matter() {
    let mut cache = cache(64, 1 << 20);
    let time = key("time", "now", "");
    put(&mut cache, &time, "ada", fresh("old", 100, CacheVisibility::Private));
    let epoch = cache.epoch(&time.server);
    cache.purge_server(&name("git"));
    cache.remove_server(&name("git"));
    assert!(cache.store(epoch, time, "ada", fresh("new", 100, CacheVisibility::Private), at(0)));
}

#[test]
fn a_purge_takes_what_it_names_and_nothing_else() {
    let mut cache = cache(64, 1 << 20);
    let call = key("time", "now", "");
    let list = CacheKey { method: "tools/list", subject: "".into(), ..call.clone() };
    let other = key("git", "log", "");
    for key in [&call, &list, &other] {
        put(&mut cache, key, "ada", fresh("x", 100, CacheVisibility::Public));
    }
    cache.purge_method(&name("time"), "tools/list");
    assert_eq!(body(&mut cache, &list, "ada", 0), None);
    assert!(body(&mut cache, &call, "ada", 0).is_some());
    cache.purge_server(&name("time"));
    assert_eq!(body(&mut cache, &call, "ada", 0), None);
    assert!(body(&mut cache, &other, "ada", 0).is_some());
    assert_eq!(cache.stats_of(&name("time")), CacheStats { hits: 1, misses: 2, ..CacheStats::default() });
    cache.remove_server(&name("time"));
    assert_eq!(cache.stats_of(&name("time")), CacheStats::default());
    assert_eq!((cache.stats().hits, cache.stats().misses), (2, 2));
}

#[test]
fn a_full_subject_loses_its_own_least_recently_used_entry() {
    let mut cache = cache(2, 1 << 20);
    let keys = ["1", "2", "3"].map(|params| key("time", "now", params));
    let other = key("time", "zone", "");
    put(&mut cache, &other, "ada", fresh("x", 100, CacheVisibility::Public));
    put(&mut cache, &keys[0], "ada", fresh("x", 100, CacheVisibility::Public));
    put(&mut cache, &keys[1], "ada", fresh("x", 100, CacheVisibility::Public));
    let _ = cache.lookup(&keys[0], "ada", at(0));
    put(&mut cache, &keys[2], "ada", fresh("x", 100, CacheVisibility::Public));
    let held = [&keys[0], &keys[1], &keys[2], &other].map(|key| body(&mut cache, key, "ada", 0).is_some());
    assert_eq!(held, [true, false, true, true]);
}

#[test]
fn overwriting_at_the_cap_evicts_no_stranger() {
    let mut cache = cache(2, 1 << 20);
    let keys = ["1", "2"].map(|params| key("time", "now", params));
    for (key, text) in [(&keys[0], "a"), (&keys[1], "b"), (&keys[1], "c"), (&keys[1], "d")] {
        assert!(put(&mut cache, key, "ada", fresh(text, 100, CacheVisibility::Private)));
    }
    assert_eq!(body(&mut cache, &keys[0], "ada", 0).unwrap(), "a");
    assert_eq!(body(&mut cache, &keys[1], "ada", 0).unwrap(), "d");
    assert_eq!(cache.stats().entries, 2);
}

#[test]
fn too_many_bytes_drive_out_the_least_recently_used_of_all() {
    let one = cost(&key("a", "t", "1"), &Bytes::from_static(b"x"));
    let mut cache = cache(64, 2 * one);
    let keys = [key("a", "t", "1"), key("b", "t", "1"), key("c", "t", "1")];
    put(&mut cache, &keys[0], "ada", fresh("x", 100, CacheVisibility::Public));
    put(&mut cache, &keys[1], "ada", fresh("x", 100, CacheVisibility::Public));
    let _ = cache.lookup(&keys[0], "ada", at(0));
    put(&mut cache, &keys[2], "ada", fresh("x", 100, CacheVisibility::Public));
    assert_eq!(keys.map(|key| body(&mut cache, &key, "ada", 0).is_some()), [true, false, true]);
    assert_eq!(cache.stats().bytes, 2 * one);
}

#[test]
fn one_answer_beyond_the_bound_drives_out_nobody() {
    let mut cache = cache(64, 1_000);
    let small = key("time", "now", "");
    put(&mut cache, &small, "ada", fresh("x", 100, CacheVisibility::Public));
    assert!(!put(
        &mut cache,
        &key("time", "zone", ""),
        "ada",
        fresh(&"x".repeat(1_000), 100, CacheVisibility::Public)
    ));
    assert!(body(&mut cache, &small, "ada", 0).is_some());
}

#[test]
fn an_answer_that_turned_private_is_no_longer_given_to_others() {
    let mut cache = cache(64, 1 << 20);
    let key = key("time", "now", "");
    put(&mut cache, &key, "ada", fresh("public", 100, CacheVisibility::Public));
    put(&mut cache, &key, "bob", fresh("bob's", 100, CacheVisibility::Private));
    assert_eq!(body(&mut cache, &key, "ada", 0), None);
    assert_eq!(body(&mut cache, &key, "bob", 0).unwrap(), "bob's");
}

#[test]
fn an_entry_costs_its_key_its_body_and_a_constant() {
    let mut cache = cache(64, 1 << 20);
    put(
        &mut cache,
        &key("time", "zone-of", "{\"a\":1}"),
        "ada",
        fresh("answer of 19 bytes.", 100, CacheVisibility::Public),
    );
    let parts = ["time", "tools/call", "zone-of", "{\"a\":1}", "answer of 19 bytes."];
    assert_eq!(cache.stats().bytes, ENTRY_OVERHEAD + parts.map(str::len).iter().sum::<usize>());
}

#[test]
fn one_answer_may_fill_the_cache_to_the_last_byte() {
    let key = key("time", "now", "");
    let cost = cost(&key, &Bytes::from_static(b"x"));
    assert!(put(&mut cache(64, cost), &key, "ada", fresh("x", 100, CacheVisibility::Public)));
    assert!(!put(&mut cache(64, cost - 1), &key, "ada", fresh("x", 100, CacheVisibility::Public)));
}

#[test]
fn a_cache_that_is_logged_shows_counts_and_no_answer() {
    let mut cache = cache(64, 1 << 20);
    put(&mut cache, &key("time", "now", "asked"), "ada", fresh("hunter2", 100, CacheVisibility::Private));
    let shown = format!("{cache:?}");
    assert!(shown.contains("entries: 1"), "{shown}");
    assert!(!shown.contains("hunter2") && !shown.contains("asked"), "{shown}");
}

#[test]
fn an_address_is_compared_in_full_whatever_its_hash() {
    let stored = key("time", "now", "{}");
    let own = PartitionKey { key: stored.clone(), owner: Some("ada".into()) };
    assert!(own.matches(&stored, Some("ada")));
    assert!(!own.matches(&stored, Some("bob")) && !own.matches(&stored, None));
    assert!(!own.matches(&key("time", "zone", "{}"), Some("ada")));
    let shared = PartitionKey { key: stored.clone(), owner: None };
    assert!(shared.matches(&stored, None) && !shared.matches(&stored, Some("ada")));
}

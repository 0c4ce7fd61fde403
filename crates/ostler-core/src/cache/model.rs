//! Model test of the cache against a plain list.

use proptest::prelude::*;

use super::*;
use crate::test_clock::{at, ms};

/// One cached answer of the reference model.
#[derive(Debug, Clone)]
struct CachedRow {
    key: CacheKey,
    owner: Option<&'static str>,
    body: Bytes,
    until: u64,
}

/// Reference model: rows in order of use, and the number of invalidations of each server.
#[derive(Default)]
struct CacheModel {
    rows: Vec<CachedRow>,
    epochs: HashMap<ServerName, u32>,
}

const PER_SUBJECT: usize = 2;
const MAX_BYTES: usize = 1_500;

impl CacheModel {
    fn bytes(&self) -> usize {
        self.rows.iter().map(|row| cost(&row.key, &row.body)).sum()
    }

    fn lookup(&mut self, key: &CacheKey, principal: &str, now: u64) -> Option<CachedRow> {
        for owner in [Some(principal), None] {
            let Some(i) = self.rows.iter().position(|row| row.key == *key && row.owner == owner) else {
                continue;
            };
            let row = self.rows.remove(i);
            if now < row.until {
                self.rows.push(row.clone());
                return Some(row);
            }
        }
        None
    }

    fn store(&mut self, new: CachedRow, principal: &str) {
        self.rows
            .retain(|row| !(row.key == new.key && (row.owner == Some(principal) || row.owner.is_none())));
        let subject = |key: &CacheKey| (key.server.clone(), key.method, key.subject.clone());
        let siblings = |row: &CachedRow| subject(&row.key) == subject(&new.key);
        if self.rows.iter().filter(|row| siblings(row)).count() == PER_SUBJECT {
            let oldest = self.rows.iter().position(siblings).unwrap();
            self.rows.remove(oldest);
        }
        while self.bytes() + cost(&new.key, &new.body) > MAX_BYTES {
            self.rows.remove(0);
        }
        self.rows.push(new);
    }

    fn purge(&mut self, server: &ServerName, method: Option<&str>) {
        self.rows
            .retain(|row| row.key.server != *server || method.is_some_and(|method| method != row.key.method));
        *self.epochs.entry(server.clone()).or_default() += 1;
    }
}

#[derive(Debug, Clone)]
enum CacheEvent {
    Lookup(CacheKey, &'static str),
    /// Takes an epoch of this server for a later store.
    TakeEpoch(ServerName),
    Store(CacheKey, &'static str, CacheVisibility, u8),
    PurgeServer(ServerName),
    PurgeMethod(ServerName, &'static str),
}

fn servers() -> impl Strategy<Value = ServerName> {
    prop::sample::select(vec!["a", "b"]).prop_map(|text| ServerName::new(text).unwrap())
}

fn methods() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["tools/list", "tools/call"])
}

fn keys() -> impl Strategy<Value = CacheKey> {
    (servers(), methods(), prop::sample::select(vec!["", "t"]), prop::sample::select(vec!["1", "2", "3"]))
        .prop_map(|(server, method, subject, params)| CacheKey {
            server,
            spec: 0,
            method,
            subject: subject.into(),
            params: Bytes::from_static(params.as_bytes()),
        })
}

fn events() -> impl Strategy<Value = Vec<(u64, CacheEvent)>> {
    let principals = || prop::sample::select(vec!["ada", "bob"]);
    let scopes = prop::sample::select(vec![CacheVisibility::Public, CacheVisibility::Private]);
    let event = prop_oneof![
        8 => (keys(), principals()).prop_map(|(key, principal)| CacheEvent::Lookup(key, principal)),
        2 => servers().prop_map(CacheEvent::TakeEpoch),
        8 => (keys(), principals(), scopes, any::<u8>())
            .prop_map(|(key, principal, scope, size)| CacheEvent::Store(key, principal, scope, size)),
        1 => servers().prop_map(CacheEvent::PurgeServer),
        1 => (servers(), methods()).prop_map(|(server, method)| CacheEvent::PurgeMethod(server, method)),
    ];
    prop::collection::vec((0u64..10, event), 0..150)
}

const TTL: u64 = 60;

proptest! {
    #[test]
    fn the_cache_agrees_with_a_list_in_order_of_use(events in events()) {
        let bounds = CacheLimits { per_subject: PER_SUBJECT, max_bytes: MAX_BYTES, max_ttl: ms(TTL) };
        let (mut cache, mut model) = (Cache::new(bounds), CacheModel::default());
        let mut epochs: HashMap<ServerName, (CacheEpoch, u32)> = HashMap::new();
        let mut now = 0;
        for (i, (step, event)) in events.into_iter().enumerate() {
            now += step;
            match event {
                CacheEvent::Lookup(key, principal) => {
                    let hit = cache.lookup(&key, principal, at(now));
                    let row = model.lookup(&key, principal, now);
                    prop_assert_eq!(hit, row.map(|row| CacheHit {
                        body: row.body,
                        remaining: ms(row.until - now),
                        scope: if row.owner.is_some() { CacheVisibility::Private } else { CacheVisibility::Public },
                    }));
                }
                CacheEvent::TakeEpoch(server) => {
                    let epoch = *model.epochs.entry(server.clone()).or_default();
                    epochs.insert(server.clone(), (cache.epoch(&server), epoch));
                    // Entries of its own keep the others' invalidations away from this server.
                    let nothing = CacheKey { server, spec: 9, method: "", subject: "".into(), params: Bytes::new() };
                    prop_assert_eq!(cache.lookup(&nothing, "", at(now)), None);
                }
                CacheEvent::Store(key, principal, scope, size) => {
                    let Some(&(cache_epoch, epoch)) = epochs.get(&key.server) else { continue };
                    let body = Bytes::from(format!("{i}{}", "x".repeat(usize::from(size))));
                    let fresh = CacheableResult { body: body.clone(), ttl: ms(TTL * 2), scope };
                    let is_current = epoch == model.epochs[&key.server];
                    prop_assert_eq!(cache.store(cache_epoch, key.clone(), principal, fresh, at(now)), is_current);
                    if is_current {
                        let owner = match scope { CacheVisibility::Public => None, CacheVisibility::Private => Some(principal) };
                        model.store(CachedRow { key, owner, body, until: now + TTL }, principal);
                    }
                }
                CacheEvent::PurgeServer(server) => {
                    cache.purge_server(&server);
                    model.purge(&server, None);
                }
                CacheEvent::PurgeMethod(server, method) => {
                    cache.purge_method(&server, method);
                    model.purge(&server, Some(method));
                }
            }
            let stats = cache.stats();
            prop_assert_eq!((stats.entries, stats.bytes), (model.rows.len(), model.bytes()));
            prop_assert!(stats.bytes <= MAX_BYTES);
            let server_stats = cache.by_server.values().map(|entries| entries.stats);
            let sums = server_stats.fold((0, 0), |sum, of| (sum.0 + of.entries, sum.1 + of.bytes));
            prop_assert_eq!(sums, (stats.entries, stats.bytes));
        }
    }
}

//! Authentication and TLS of connections.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use data_encoding::BASE64URL_NOPAD;
use nkeys::KeyPair;
use ostler_relay::broker::nats::{Credentials, NatsBroker, NatsOptions, Tls};
use ostler_relay::broker::{Broker as _, BrokerConnectError};
use ostler_testkit::{NatsServer, NatsSetup, NatsVersion};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{BOTH, at, connect, in_time, round_trip};

fn folder() -> TempDir {
    tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"))
}

fn write(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    let file = folder.path().join(name);
    std::fs::write(&file, text).unwrap_or_else(|error| panic!("{error}"));
    file
}

async fn with_config(which: NatsVersion, config: &str) -> NatsServer {
    NatsServer::start(NatsSetup { version: which, config: config.into(), ..NatsSetup::default() }).await
}

async fn refusal(options: NatsOptions) -> BrokerConnectError {
    let refused = in_time(NatsBroker::new(options).connect()).await.err();
    refused.unwrap_or_else(|| panic!("it was let in"))
}

fn wrong() -> BrokerConnectError {
    BrokerConnectError::Credentials("authorization violation".into())
}

#[tokio::test]
async fn a_user_is_let_in_by_its_password_wherever_it_stands() {
    for which in BOTH {
        let server = with_config(which, "authorization { user: \"a@b\", password: \"p:w\" }\n").await;
        let named = |user: &str, password: &str| {
            let credentials = Credentials::Password { user: user.into(), password: password.into() };
            NatsOptions { credentials, ..at(&server) }
        };
        let in_url = |user: &str| {
            let url = server.url().replace("nats://", &format!("nats://{user}@"));
            NatsOptions::new(vec![url])
        };
        for options in [named("a@b", "p:w"), in_url("a%40b:p%3Aw")] {
            let broker = NatsBroker::new(options);
            assert_eq!(broker.address(), server.url());
            let link = in_time(broker.connect()).await.unwrap_or_else(|error| panic!("{error}"));
            assert!(link.broker_info().requires_credentials);
            round_trip(&link, "settle").await;
        }
        for options in [named("a@b", "x"), in_url("a%40b:x"), in_url("p%3Aw"), at(&server)] {
            assert_eq!(refusal(options).await, wrong());
        }
    }
}

#[tokio::test]
async fn whoever_has_the_token_is_let_in() {
    for which in BOTH {
        let server = with_config(which, "authorization { token: \"s3cret/x\" }\n").await;
        let with = |token: &str| NatsOptions { credentials: Credentials::Token(token.into()), ..at(&server) };
        connect(with("s3cret/x")).await;
        connect(NatsOptions::new(vec![server.url().replace("nats://", "nats://s3cret%2Fx@")])).await;
        assert_eq!(refusal(with("other")).await, wrong());
    }
}

#[tokio::test]
async fn a_file_that_can_not_be_used_is_named_with_the_reason() {
    let server = NatsServer::start_default(NatsVersion::Core).await;
    let folder = folder();
    let (missing, odd) = (folder.path().join("missing"), write(&folder, "odd", "nothing of use"));
    let gone = "No such file or directory (os error 2)";
    let tls = |tls: Tls| NatsOptions { tls, ..at(&server) };
    let by = |credentials: Credentials| NatsOptions { credentials, ..at(&server) };
    let table = [
        (
            by(Credentials::Creds(missing.clone())),
            format!("the credentials in {} can't be used: {gone}", missing.display()),
        ),
        (
            by(Credentials::Nkey(missing.clone())),
            format!("the seed of the nkey in {} can't be used: {gone}", missing.display()),
        ),
        (
            tls(Tls { ca: Some(missing.clone()), ..Tls::default() }),
            format!("the CA in {} can't be used: {gone}", missing.display()),
        ),
        (
            tls(Tls { cert: Some(odd.clone()), ..Tls::default() }),
            "there is a certificate without its key".into(),
        ),
    ];
    for (options, why) in table {
        assert_eq!(refusal(options).await, BrokerConnectError::Credentials(why));
    }
    for credentials in [Credentials::Creds(odd.clone()), Credentials::Nkey(odd.clone())] {
        match refusal(by(credentials)).await {
            BrokerConnectError::Credentials(why) => assert!(why.contains(&*odd.to_string_lossy()), "{why}"),
            other => panic!("{other:?}"),
        }
    }
}

/// Keys of an operator, an account and a user for a server that trusts JWTs.
struct NatsJwtTrust {
    operator: KeyPair,
    account: KeyPair,
    user: KeyPair,
}

impl NatsJwtTrust {
    fn new() -> Self {
        Self { operator: KeyPair::new_operator(), account: KeyPair::new_account(), user: KeyPair::new_user() }
    }

    fn config(&self) -> String {
        let operator = jwt(&self.operator, &self.operator, json!({"type": "operator", "version": 2}), None);
        let limits = json!({"subs": -1, "data": -1, "payload": -1, "conn": -1, "leaf": -1, "imports": -1, "exports": -1, "wildcards": true});
        let account = json!({"type": "account", "version": 2, "limits": limits});
        let account = jwt(&self.operator, &self.account, account, None);
        let id = self.account.public_key();
        format!("operator: {operator}\nresolver: MEMORY\nresolver_preload: {{ {id}: {account} }}\n")
    }

    fn creds(&self, lasts: Option<u64>) -> String {
        let claims = json!({"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1});
        let jwt = jwt(&self.account, &self.user, claims, lasts);
        let seed = self.user.seed().unwrap_or_else(|error| panic!("{error}"));
        format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        )
    }
}

fn jwt(issuer: &KeyPair, subject: &KeyPair, nats: Value, lasts: Option<u64>) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let (iss, sub) = (issuer.public_key(), subject.public_key());
    let mut claims = json!({"jti": "x", "iat": now, "iss": iss, "sub": sub, "name": "x", "nats": nats});
    if let Some(lasts) = lasts {
        claims["exp"] = (now + lasts).into();
    }
    let header = json!({"typ": "JWT", "alg": "ed25519-nkey"});
    let [header, claims] = [header, claims].map(|part| BASE64URL_NOPAD.encode(part.to_string().as_bytes()));
    let signed = format!("{header}.{claims}");
    let signature = issuer.sign(signed.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    format!("{signed}.{}", BASE64URL_NOPAD.encode(&signature))
}

#[tokio::test]
async fn a_credentials_file_is_read_for_each_connection_and_ends_when_it_expires() {
    let folder = folder();
    for which in BOTH {
        let trust = NatsJwtTrust::new();
        let server = with_config(which, &trust.config()).await;
        let file = write(&folder, "creds", &trust.creds(Some(2)));
        let options = NatsOptions { credentials: Credentials::Creds(file), ..at(&server) };
        let link = connect(options.clone()).await;
        assert!(link.broker_info().requires_credentials);
        round_trip(&link, "settle").await;
        assert_eq!(in_time(link.ended()).await, "User Authentication Expired");
        // The server counts in whole seconds, so it admits the user for a moment.
        let broker = NatsBroker::new(options.clone());
        let refused = in_time(async {
            loop {
                if let Err(refusal @ BrokerConnectError::Credentials(_)) = broker.connect().await {
                    return refusal;
                }
            }
        });
        assert_eq!(refused.await, wrong());
        write(&folder, "creds", &trust.creds(None));
        round_trip(&connect(options).await, "settle").await;
    }
}

/// A CA and certificates that it has issued.
struct Ca(TempDir);

impl Ca {
    fn new() -> Self {
        let ca = Self(folder());
        ca.openssl("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.pem");
        for (name, usage) in [("server", "serverAuth"), ("client", "clientAuth")] {
            ca.openssl(&format!(
                "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr \
                 -addext subjectAltName=IP:127.0.0.1 -addext extendedKeyUsage={usage}"
            ));
            ca.openssl(&format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -copy_extensions copy -out {name}.pem"
            ));
        }
        ca
    }

    fn openssl(&self, args: &str) {
        let output = std::process::Command::new("openssl")
            .args(args.split_whitespace())
            .current_dir(self.0.path())
            .output()
            .unwrap_or_else(|error| panic!("openssl can't be started, run ./scripts/prepare: {error}"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn tls_config(ca: &Ca, verify: bool) -> String {
    let file = |name: &str| Path::display(&ca.file(name)).to_string();
    let (cert, key, ca) = (file("server.pem"), file("server.key"), file("ca.pem"));
    format!("tls {{ cert_file: \"{cert}\", key_file: \"{key}\", ca_file: \"{ca}\", verify: {verify} }}\n")
}

#[tokio::test]
async fn a_server_is_believed_if_the_given_ca_vouches_for_it() {
    let (ca, other) = (Ca::new(), Ca::new());
    for which in BOTH {
        let server = with_config(which, &tls_config(&ca, false)).await;
        let with = |url: String, ca: Option<PathBuf>| {
            let tls = Tls { ca, ..Tls::default() };
            NatsOptions { tls, ..NatsOptions::new(vec![url]) }
        };
        let tls_url = server.url().replace("nats://", "tls://");
        for url in [server.url(), tls_url.clone()] {
            round_trip(&connect(with(url, Some(ca.file("ca.pem")))).await, "settle").await;
        }
        for ca in [Some(other.file("ca.pem")), None] {
            let refused = refusal(with(tls_url.clone(), ca)).await;
            assert!(
                matches!(&refused, BrokerConnectError::Unreachable(why) if why.contains("certificate")),
                "{refused:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_gets_ours() {
    let ca = Ca::new();
    for which in BOTH {
        let server = with_config(which, &tls_config(&ca, true)).await;
        let tls = Tls { ca: Some(ca.file("ca.pem")), ..Tls::default() };
        let without = NatsOptions { tls: tls.clone(), ..at(&server) };
        let (cert, key) = (Some(ca.file("client.pem")), Some(ca.file("client.key")));
        let with = NatsOptions { tls: Tls { cert, key, ..tls }, ..at(&server) };
        round_trip(&connect(with).await, "settle").await;
        let refused = refusal(without).await;
        assert!(matches!(refused, BrokerConnectError::Unreachable(_)), "{refused:?}");
    }
}

#[tokio::test]
async fn nothing_is_said_in_the_open_where_tls_is_required() {
    let server = NatsServer::start_default(NatsVersion::Core).await;
    let tls = Tls { is_required: true, ..Tls::default() };
    let refused = refusal(NatsOptions { tls, ..at(&server) }).await;
    assert!(matches!(refused, BrokerConnectError::Unreachable(_)), "{refused:?}");
}

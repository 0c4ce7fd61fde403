use proptest::prelude::*;

use super::*;
use crate::policy::glob;

fn role(allow: &[&str], deny: &[&str]) -> Role {
    let owned = |patterns: &[&str]| patterns.iter().map(|&pattern| pattern.to_owned()).collect();
    Role { allow: owned(allow), deny: owned(deny), budget: None, max_in_flight: None }
}

fn rules(roles: &[(&str, Role)]) -> Rules {
    Rules::from_roles(&roles.iter().map(|(name, role)| ((*name).to_owned(), role.clone())).collect())
}

fn caller(role: &str) -> Caller {
    Caller::new("somebody", role)
}

#[test]
fn without_rules_everybody_may_use_everything() {
    let rules = Rules::unrestricted();
    assert_eq!(rules.decide(&caller("any"), "time", Subject::Tool("get")), RuleDecision::NoRules);
    assert!(!rules.are_restrictive());
}

#[test]
fn a_role_that_is_not_in_the_config_gets_nothing_but_local_gets_everything() {
    let rules = rules(&[("a", role(&["*"], &[]))]);
    assert_eq!(rules.decide(&caller("b"), "time", Subject::Tool("get")), RuleDecision::UnknownRole);
    assert_eq!(rules.decide_server(&caller("b"), "time"), RuleDecision::UnknownRole);
    assert_eq!(rules.decide(&Caller::local(), "time", Subject::Tool("get")), RuleDecision::LocalDefault);
    assert!(!rules.are_restrictive());
}

#[test]
fn a_rule_about_local_callers_holds_for_them() {
    let rules = rules(&[("local", role(&["time/*"], &[]))]);
    assert!(rules.decide_server(&Caller::local(), "time").is_allowed());
    assert_eq!(rules.decide_server(&Caller::local(), "git"), RuleDecision::Role(Rule::Unmatched));
    assert!(rules.are_restrictive());
}

#[test]
fn no_rule_holds_the_operator_back_and_no_name_makes_an_operator() {
    let rules = rules(&[("local", role(&[], &[])), ("operator", role(&[], &[]))]);
    assert_eq!(rules.decide_server(&Caller::operator(), "time"), RuleDecision::Operator);
    let pretender = Caller::new("operator", "operator");
    assert_eq!(rules.decide_server(&pretender, "time"), RuleDecision::Role(Rule::LockedOut));
}

#[test]
fn the_answer_is_always_the_same_unless_a_role_may_use_a_part() {
    let rules = rules(&[
        ("all", role(&["*"], &[])),
        ("part", role(&["time/*"], &[])),
        ("but", role(&["*"], &["git/*"])),
    ]);
    let table = [
        (caller("all"), Some(true)),
        (caller("part"), None),
        (caller("but"), None),
        (caller("stranger"), Some(false)),
        (Caller::local(), Some(true)),
        (Caller::operator(), Some(true)),
    ];
    for (caller, answer) in table {
        assert_eq!(rules.rules_for(&caller).unconditional_answer(), answer, "{caller:?}");
    }
    assert_eq!(Rules::unrestricted().rules_for(&caller("any")).unconditional_answer(), Some(true));
}

#[test]
fn a_resource_is_allowed_only_if_what_its_address_comes_to_is_too() {
    let rules = rules(&[("a", role(&["fs/resource:file:///tmp/*"], &["fs/resource:file:///tmp/secret*"]))]);
    let may = |uri| rules.decide(&caller("a"), "fs", Subject::Resource(uri)).is_allowed();
    assert!(may("file:///tmp/x"));
    assert!(may("file:///tmp/./x"), "it comes to what is allowed");
    assert!(!may("file:///tmp/../etc/passwd"));
    assert!(!may("file:///tmp/%73ecret"));
    assert!(!may("file:///tmp/../tmp/secret"));
    assert!(!may("file:///etc/../tmp/x"), "as it is written it is not allowed");
}

#[test]
fn a_uri_that_servers_read_differently_is_unknown_unless_every_resource_is_allowed() {
    let some = role(&["fs/resource:file:///tmp/*", "all/*"], &[]);
    let but = role(&["*"], &["fs/resource:file:///etc/*"]);
    let rules = rules(&[("some", some), ("but", but)]);
    for uri in ["file:///tmp/.\t./x", "file:///tmp/a b", "file:///tmp/..\\x", "file:///tmp/.%0a./x"] {
        for role in ["some", "but"] {
            let ruling = rules.decide(&caller(role), "fs", Subject::Resource(uri));
            assert_eq!(ruling, RuleDecision::Role(Rule::AmbiguousUri), "{role} {uri:?}");
        }
        assert!(rules.decide(&caller("some"), "all", Subject::Resource(uri)).is_allowed(), "{uri:?}");
    }
}

#[test]
fn every_form_of_a_uri_must_be_allowed_and_rules_have_the_same_forms() {
    let table = [
        ("file:///my%20docs/*", "file:///my%20docs/%C3%A4", true),
        ("file:///my%20docs/*", "file:///my%20docs/../x", false),
        ("search://q?text=*", "search://q?text=a%20b#x", true),
        ("search://q?text=*", "search://other?text=a", false),
        ("docs://*/summary", "docs://board/summary", true),
        ("docs://*/summary", "docs://board?/summary", false),
        ("file:///tmp/*.txt", "file:///tmp/key?.txt", false),
        ("file:///tmp/*.txt", "file:///tmp/key#.txt", false),
        ("file:///tmp/?/x", "file:///tmp/?/x", false),
        ("file://documents/*", "file://documents/readme", true),
        ("file://documents/*", "file://documents/../etc/passwd", false),
        ("file://documents/*", "file://documents/..%2f../etc/passwd", false),
        ("https://good.example/*", "https://good.example/a//b?c=d", true),
        ("https://good.example*", "https://good.example@evil.example/", false),
        ("x:a%2Ab/*", "x:a%2Ab/../secret", false),
        ("search://q{?text}", "search://q{?text}", true),
        ("docs://public*", "docs://public/x", true),
        ("docs://public*", "docs://public@board/x", false),
        ("docs://public*", "docs://public:1@board/x", false),
        ("docs://public*", "docs://public%40board/x", false),
        ("docs://public:*", "docs://public:1@board/x", false),
        ("docs://Board/*", "docs://Board/x", true),
        ("db://localhost:5432/*", "db://localhost:5432/x?y#z", true),
        ("db://localhost:5432/*", "db://localhost:5433/x", false),
        ("db://localhost:5432/*", "db://localhost/x", false),
        ("db://localhost:*", "db://localhost:5432/x", true),
        ("db://u@localhost:*/x", "db://u@localhost:5432/x", true),
        ("db://User:word@Localhost:5432/*", "db://User:word@Localhost:5432/x", true),
        ("mail://me%40a.example@b.example/*", "mail://me%40a.example@b.example/x", true),
        ("http://[::1]:8080/*", "http://[::1]:8080/x", true),
        ("docs://*", "docs://[board]/x", false),
        ("https://good.example/a;v=1/*", "https://good.example/a;v=1/b;w=2", true),
        ("https://good.example/a;*", "https://good.example/a;v=1/b", true),
        ("https://good.example/a/*", "https://good.example/a/..;/b", false),
        ("file:///tmp/*.txt", "file:///tmp/key;.txt", false),
        ("file:///tmp/*.txt", "file:///tmp/key%3b.txt", false),
    ];
    for (pattern, uri, may) in table {
        let rules = rules(&[("a", role(&[&format!("s/resource:{pattern}")], &[]))]);
        assert_eq!(
            rules.decide(&caller("a"), "s", Subject::Resource(uri)).is_allowed(),
            may,
            "{pattern} {uri}"
        );
    }
}

#[test]
fn one_denied_form_of_a_uri_is_enough_however_the_rule_is_written() {
    let table = [
        ("FILE:///etc/*", "file:///etc/passwd", true),
        ("file:/etc/*", "file:///etc/passwd", true),
        ("file://localhost/etc/*", "file:///etc/passwd", true),
        ("file:///%65tc/*", "file:///etc/passwd", true),
        ("file:///etc/*", "file://elsewhere/etc/passwd", true),
        ("file:///etc/passwd", "file:///etc/passwd/", true),
        ("https://EVIL.example/*", "https:evil.example./x", true),
        ("search://q?text=secret*", "search://q?text=%73ecret", true),
        ("search://q?text=secret*", "search://q?text=a", false),
        ("file:///etc/*", "file:///etcetera", false),
        ("docs://board/*", "docs://BOARD/x", true),
        ("docs://Board/*", "docs://bOARD/x", true),
        ("docs://board/*", "docs://u@board/x", true),
        ("docs://board/*", "docs://a@b@board/x", true),
        ("docs://board/*", "docs://u%40board/x", true),
        ("docs://board/*", "docs://board:1/x", true),
        ("docs://board/*", "docs://board:/x", true),
        ("docs://board/*", "docs://board%3A1/x", true),
        ("docs://board/*", "docs://board./x", true),
        ("docs://board./*", "docs://board/x", true),
        ("docs://board/*", "docs://U:p@Board.:1/x", true),
        ("docs://board/*", "//u@board/x", false),
        ("//board/*", "//u@Board/x", true),
        ("docs://board/*", "docs://board.example/x", false),
        ("ssh://git@host/*", "ssh://git@host:22/x", true),
        ("db://host:5432/*", "db://u@HOST:05432/x", true),
        ("db://host:5432/*", "db://host:5433/x", false),
        ("https://board.example/secret", "https://board.example/secret;x", true),
        ("https://board.example/secret", "https://board.example/secret;x?y#z", true),
        ("https://board.example/secret", "https://u@board.example:8443/secret;x", true),
        ("https://board.example/a/secret", "https://board.example/a;x/secret;y", true),
        ("https://board.example/a/secret", "https://board.example/a;x/secret", true),
        ("https://board.example/secret", "https://board.example/a/..;x/secret", true),
        ("notes:secret", "notes:secret;x", true),
        ("search://q?text=secret", "search://q?text=a;secret", false),
    ];
    for (pattern, uri, is_denied) in table {
        let rules = rules(&[("a", role(&["*"], &[&format!("s/resource:{pattern}")]))]);
        let ruling = rules.decide(&caller("a"), "s", Subject::Resource(uri));
        assert_eq!(!ruling.is_allowed(), is_denied, "{pattern} {uri}");
        assert!(ruling.to_string().contains(pattern) || !is_denied, "{ruling}");
    }
}

#[test]
fn the_rule_about_an_address_as_it_is_written_is_the_one_that_is_told() {
    let allow = ["fs/resource:file:///tmp/./*", "fs/resource:file:///tmp/x"];
    let rules = rules(&[("a", role(&allow, &[]))]);
    let decision = rules.decide(&caller("a"), "fs", Subject::Resource("file:///tmp/./x")).to_string();
    assert!(decision.contains(allow[0]), "{decision}");
}

#[test]
fn a_ruling_says_which_rule_decides() {
    let rules = rules(&[("a", role(&["time/*"], &[]))]);
    let decision = |caller: &Caller| rules.decide(caller, "time", Subject::Tool("get")).to_string();
    assert_eq!(decision(&Caller::operator()), "rules are not for the operator");
    assert_eq!(decision(&Caller::local()), "`local` may use everything unless the config says otherwise");
    assert_eq!(decision(&caller("b")), "the role is not in the config");
    assert!(decision(&caller("a")).contains("time/*"), "{}", decision(&caller("a")));
    assert_eq!(Rules::unrestricted().decide_server(&caller("b"), "time").to_string(), "there are no rules");
}

#[test]
fn a_role_may_use_all_of_a_server_only_if_no_rule_could_hide_anything_of_it() {
    let table = [
        (role(&["*"], &[]), true),
        (role(&["time/*"], &[]), true),
        (role(&["x/*", "t*"], &["git/*"]), true),
        (role(&["time/get*"], &[]), false),
        (role(&["time/?*"], &[]), false),
        (role(&["*"], &["*/set"]), false),
        (role(&["*"], &["time/set"]), false),
        (role(&["git/*"], &[]), false),
        (role(&[], &[]), false),
    ];
    for (role, may) in table {
        let shown = format!("{role:?}");
        assert_eq!(rules(&[("r", role)]).rules_for(&caller("r")).allows_all_of("time"), may, "{shown}");
    }
    let rules = rules(&[]);
    assert!(!rules.rules_for(&caller("r")).allows_all_of("time"));
    assert!(rules.rules_for(&Caller::local()).allows_all_of("time"));
}

#[test]
fn rules_are_asked_about_every_kind_of_subject() {
    let rules = rules(&[(
        "r",
        role(
            &["time/get_time", "git/*", "files/resource:file:///tmp/*", "docs/prompt:*"],
            &["*/delete_*", "git/method:*"],
        ),
    )]);
    let table = [
        ("time", Subject::Tool("get_time"), Rule::Allowed("time/get_time")),
        ("time", Subject::Method("vendor/do"), Rule::Unmatched),
        ("git", Subject::Tool("log"), Rule::Allowed("git/*")),
        ("git", Subject::Tool("delete_branch"), Rule::Denied("*/delete_*")),
        ("git", Subject::Method("vendor/do"), Rule::Denied("git/method:*")),
        ("files", Subject::Resource("file:///tmp/a"), Rule::Allowed("files/resource:file:///tmp/*")),
        ("files", Subject::Resource("file:///etc/a"), Rule::Unmatched),
        ("docs", Subject::Prompt("review"), Rule::Allowed("docs/prompt:*")),
        ("docs", Subject::Tool("prompt:review"), Rule::Unmatched),
        ("git", Subject::Tool("method:x"), Rule::Allowed("git/*")),
    ];
    for (server, subject, rule) in table {
        assert_eq!(
            rules.decide(&caller("r"), server, subject),
            RuleDecision::Role(rule),
            "{server}/{subject}"
        );
    }
}

#[test]
fn a_server_is_seen_where_something_of_it_may_be_used() {
    let rules = rules(&[("r", role(&["time/get", "g*/x", "*/status"], &["files/*", "sh?*"]))]);
    let table = [
        ("time", Rule::Allowed("time/get")),
        ("tim", Rule::Allowed("*/status")),
        ("git", Rule::Allowed("g*/x")),
        ("files", Rule::Denied("files/*")),
        ("shell", Rule::Denied("sh?*")),
        ("sh", Rule::Denied("sh?*")),
    ];
    for (server, rule) in table {
        assert_eq!(rules.decide_server(&caller("r"), server), RuleDecision::Role(rule), "{server}");
    }
}

/// Matches by the definition, character by character.
fn fits(pattern: &[char], name: &[char]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some(('*', rest)) => (0..=name.len()).any(|taken| fits(rest, &name[taken..])),
        Some((&wanted, rest)) => name
            .split_first()
            .is_some_and(|(&found, name)| (wanted == '?' || wanted == found) && fits(rest, name)),
    }
}

fn naive(pattern: &str, name: &str) -> bool {
    let letters = |text: &str| text.chars().collect::<Vec<_>>();
    fits(&letters(pattern), &letters(name))
}

/// Returns every text over the letters of the patterns and one other letter, long enough to distinguish
/// patterns of five letters.
fn endings() -> Vec<String> {
    let mut all = vec![String::new()];
    let mut longest = all.clone();
    for _ in 0..6 {
        longest = longest.iter().flat_map(|text| ['a', '/', '!'].map(|c| format!("{text}{c}"))).collect();
        all.extend(longest.iter().cloned());
    }
    all
}

fn patterns() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[ab/*?]{1,5}", 0..4)
}

fn subject() -> impl Strategy<Value = String> {
    "(prompt:|method:|resource:|tool:)?[ab/:]{0,3}"
}

fn of_role(allow: &[String], deny: &[String]) -> Rules {
    let role = Role { allow: allow.to_vec(), deny: deny.to_vec(), budget: None, max_in_flight: None };
    Rules::from_roles(&[("r".to_owned(), role)].into())
}

proptest! {
    #[test]
    fn a_ruling_is_what_the_definition_says(
        allow in patterns(), deny in patterns(), server in "[ab]{1,3}", name in subject(),
    ) {
        for subject in [Subject::Tool(&name), Subject::Prompt(&name), Subject::Resource(&name), Subject::Method(&name)] {
            let text = format!("{server}/{subject}");
            let any = |patterns: &[String]| patterns.iter().any(|pattern| naive(pattern, &text));
            let ruling = of_role(&allow, &deny).decide(&caller("r"), &server, subject).is_allowed();
            let is_allowed = any(&allow) && !any(&deny);
            // Other forms of a URI may be refused.
            let is_said = if matches!(subject, Subject::Resource(_)) { !ruling || is_allowed } else { ruling == is_allowed };
            prop_assert!(is_said, "{}", text);
        }
    }

    #[test]
    fn what_may_be_used_is_on_a_server_that_is_seen(
        allow in patterns(), deny in patterns(), server in "[ab]{1,3}", name in subject(),
    ) {
        let rules = of_role(&allow, &deny);
        let is_usable = rules.decide(&caller("r"), &server, Subject::parse(&name)).is_allowed();
        prop_assert!(!is_usable || rules.decide_server(&caller("r"), &server).is_allowed());
    }

    #[test]
    fn adding_a_deny_never_widens(
        allow in patterns(), deny in patterns(), added in "[ab/*?]{1,5}", server in "[ab]{1,3}", name in subject(),
    ) {
        let more: Vec<String> = deny.iter().cloned().chain([added]).collect();
        let (before, after) = (of_role(&allow, &deny), of_role(&allow, &more));
        let sees = |rules: &Rules| rules.decide_server(&caller("r"), &server).is_allowed();
        let may = |rules: &Rules| rules.decide(&caller("r"), &server, Subject::parse(&name)).is_allowed();
        prop_assert!(sees(&before) || !sees(&after));
        prop_assert!(may(&before) || !may(&after));
    }

    #[test]
    fn the_order_of_patterns_does_not_matter(
        allow in patterns(), deny in patterns(), server in "[ab]{1,3}", name in subject(),
    ) {
        let reversed = |patterns: &[String]| patterns.iter().rev().cloned().collect::<Vec<_>>();
        let (forward, backward) = (of_role(&allow, &deny), of_role(&reversed(&allow), &reversed(&deny)));
        let answers = |rules: &Rules| {
            let may = rules.decide(&caller("r"), &server, Subject::parse(&name)).is_allowed();
            (may, rules.decide_server(&caller("r"), &server).is_allowed())
        };
        prop_assert_eq!(answers(&forward), answers(&backward));
    }

    #[test]
    fn what_a_pattern_says_of_a_beginning_is_what_it_says_of_every_end(
        pattern in "[ab/*?]{1,5}", server in "[ab]{1,2}",
    ) {
        let beginning = format!("{server}/");
        let mut ends = endings().into_iter().map(|end| naive(&pattern, &format!("{beginning}{end}")));
        prop_assert_eq!(glob::matches_all_with_prefix(&pattern, &beginning), ends.all(|fits| fits));
        // `b` occurs in patterns and in no ending, so the ends of the pattern itself are tried too.
        let own = pattern.replace(['*', '?'], "a");
        let tails = (0..=own.len()).map(|at| own[at..].to_owned());
        let reaches = endings().into_iter().chain(tails).any(|end| naive(&pattern, &format!("{beginning}{end}")));
        prop_assert_eq!(glob::matches_some_with_prefix(&pattern, &beginning), reaches);
    }
}

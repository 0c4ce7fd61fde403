//! Servers behind URLs that can't be reached or are no MCP servers.

use std::net::SocketAddr;

use crate::new_user::NewUser;
use crate::web_servers;

/// Types commands with a server at a URL; replaces ports, which differ between runs.
fn at(url: &str, lines: &[&str]) -> String {
    let user = NewUser::with_config(&format!("[servers.weather]\nurl = \"{url}\"\n"));
    let printed = user.types(lines);
    match url.split('/').nth(2).and_then(|place| place.parse::<SocketAddr>().ok()) {
        Some(address) => printed.replace(&address.port().to_string(), "[PORT]"),
        None => printed,
    }
}

#[test]
fn a_port_where_nothing_listens() {
    let url = format!("http://{}/mcp", web_servers::closed());
    insta::assert_snapshot!(at(&url, &["tools", "call weather__forecast city=Oslo", "status --probe"]));
}

#[test]
fn a_host_name_with_a_typo() {
    insta::assert_snapshot!(at("http://mcp.weather.invalid/mcp", &["tools"]));
}

#[test]
fn a_path_that_does_not_exist() {
    let url = format!(
        "http://{}/",
        web_servers::serve("404 Not Found", "content-type: text/plain\r\n", "no such page")
    );
    insta::assert_snapshot!(at(&url, &["tools"]));
}

#[test]
fn a_web_page_in_place_of_an_endpoint() {
    let url = format!(
        "http://{}/docs",
        web_servers::serve("200 OK", "content-type: text/html\r\n", "<html>Weather</html>")
    );
    insta::assert_snapshot!(at(&url, &["tools"]));
}

#[test]
fn a_certificate_that_nobody_has_signed() {
    let url = format!("https://{}/mcp", web_servers::serve_self_signed());
    insta::assert_snapshot!(at(&url, &["tools"]));
}

#[test]
fn https_for_a_server_without_tls() {
    let url = format!("https://{}/mcp", web_servers::serve("200 OK", "", ""));
    insta::assert_snapshot!(at(&url, &["tools"]));
}

#[test]
fn no_credentials() {
    let headers = "www-authenticate: Bearer realm=\"weather\"\r\n";
    let url = format!("http://{}/mcp", web_servers::serve("401 Unauthorized", headers, ""));
    insta::assert_snapshot!(at(&url, &["tools", "call weather__forecast", "status --probe"]));
}

#[test]
fn credentials_that_may_not() {
    let url = format!("http://{}/mcp", web_servers::serve("403 Forbidden", "", ""));
    insta::assert_snapshot!(at(&url, &["tools"]));
}

#[test]
fn a_server_with_a_fault_of_its_own() {
    let url =
        format!("http://{}/mcp", web_servers::serve("500 Internal Server Error", "", "database is down"));
    insta::assert_snapshot!(at(&url, &["tools"]));
}

#[test]
fn a_url_without_its_beginning() {
    insta::assert_snapshot!(at("mcp.example.com/mcp", &["check", "tools"]));
}

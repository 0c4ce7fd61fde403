//! Questions of servers to a person (`elicitation/create`): their fields, and the validation of replies.
//!
//! A form is a flat object of texts, numbers, booleans and choices. Nothing here waits or prints.

use chrono::{DateTime, NaiveDate};
use reqwest::Url;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::output::escape_line;

/// Upper bound on the fields of one form.
const MAX_FIELDS: usize = 50;
/// Upper bound on the options of one field.
const MAX_OPTIONS: usize = 200;

/// Upper bound on the address of a page, in characters.
const MAX_URL_CHARS: usize = 2048;

/// Code of an error that names the pages a person has to visit first.
pub(crate) const URL_REQUIRED: i64 = -32_042;

/// Question of a server.
#[derive(Debug)]
pub(crate) enum Elicitation {
    /// Asks for values of these fields; without fields, for consent.
    Form { message: String, fields: Vec<ElicitationField> },
    /// Asks for a visit to a page. Data entered there does not pass through here.
    Url { message: String, url: Url },
}

/// One requested value.
#[derive(Debug)]
pub(crate) struct ElicitationField {
    pub(crate) name: String,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) is_required: bool,
    /// Valid for the field.
    pub(crate) default: Option<Value>,
    kind: FieldKind,
}

#[derive(Debug)]
enum FieldKind {
    Text { min: Option<u64>, max: Option<u64>, format: Option<String> },
    Number { is_whole: bool, min: Option<f64>, max: Option<f64> },
    Boolean,
    One(Vec<Choice>),
    Several { choices: Vec<Choice>, min: Option<u64>, max: Option<u64> },
}

/// Allowed value, and its name for people.
#[derive(Debug)]
struct Choice {
    value: String,
    title: String,
}

/// Reply of a person.
#[derive(Debug, PartialEq)]
pub(crate) enum ElicitationReply {
    Accept(Option<Map<String, Value>>),
    Decline,
    Cancel,
}

impl ElicitationReply {
    /// Returns the result of the request.
    pub(crate) fn result(self) -> String {
        match self {
            Self::Accept(Some(content)) => json!({ "action": "accept", "content": content }),
            Self::Accept(None) => json!({ "action": "accept" }),
            Self::Decline => json!({ "action": "decline" }),
            Self::Cancel => json!({ "action": "cancel" }),
        }
        .to_string()
    }
}

#[derive(Deserialize)]
struct ElicitationParams {
    #[serde(default)]
    mode: Option<String>,
    #[serde(default)]
    message: String,
    #[serde(default)]
    url: Option<String>,
}

#[derive(Deserialize)]
struct Property {
    #[serde(default, rename = "type")]
    kind: Option<String>,
    title: Option<String>,
    description: Option<String>,
    default: Option<Value>,
    #[serde(rename = "minLength")]
    min_length: Option<u64>,
    #[serde(rename = "maxLength")]
    max_length: Option<u64>,
    format: Option<String>,
    minimum: Option<f64>,
    maximum: Option<f64>,
    #[serde(rename = "minItems")]
    min_items: Option<u64>,
    #[serde(rename = "maxItems")]
    max_items: Option<u64>,
    #[serde(rename = "enumNames")]
    names: Option<Vec<String>>,
    items: Option<ChoiceList>,
    #[serde(flatten)]
    listed: ChoiceList,
}

/// The two forms of a list of allowed values.
#[derive(Default, Deserialize)]
struct ChoiceList {
    #[serde(rename = "enum")]
    values: Option<Vec<String>>,
    #[serde(rename = "oneOf")]
    one_of: Option<Vec<TitledChoice>>,
    #[serde(rename = "anyOf")]
    any_of: Option<Vec<TitledChoice>>,
}

#[derive(Deserialize)]
struct TitledChoice {
    r#const: String,
    title: Option<String>,
}

impl Elicitation {
    /// Reads the parameters of the request.
    ///
    /// # Errors
    ///
    /// Says what a person at a terminal can't be asked.
    pub(crate) fn parse(params: &[u8]) -> Result<Self, String> {
        ostler_wire::all_members(params).ok_or("the question can't be read: it is no object")?;
        let ElicitationParams { mode, message, url } =
            serde_json::from_slice(params).map_err(|error| format!("the question can't be read: {error}"))?;
        match mode.as_deref() {
            Some("url") => {
                let url = url.as_deref().and_then(page).ok_or_else(|| {
                    format!(
                        "it names no page of the web with an address of at most {MAX_URL_CHARS} characters"
                    )
                })?;
                Ok(Self::Url { message, url })
            }
            Some("form") | None => Ok(Self::Form { message, fields: fields(params)? }),
            Some(other) => {
                Err(format!("it asks in the mode `{}`, which is not known here", escape_line(other)))
            }
        }
    }
}

/// Parses the address of a web page.
fn page(url: &str) -> Option<Url> {
    let url = Url::parse(url).ok().filter(|url| url.as_str().len() <= MAX_URL_CHARS)?;
    (matches!(url.scheme(), "https" | "http") && url.has_host()).then_some(url)
}

/// Returns the pages that an error of the code [`URL_REQUIRED`] names.
pub(crate) fn required_pages(error: &[u8]) -> Vec<Url> {
    #[derive(Deserialize)]
    struct UrlRequiredError {
        data: RequiredPages,
    }
    #[derive(Deserialize)]
    struct RequiredPages {
        elicitations: Vec<ElicitationParams>,
    }
    let Ok(UrlRequiredError { data }) = serde_json::from_slice(error) else { return Vec::new() };
    data.elicitations.iter().filter_map(|it| page(it.url.as_deref()?)).take(MAX_OPTIONS).collect()
}

/// Upper bound on shown characters of a host.
const MAX_HOST_CHARS: usize = 60;

/// Returns the host of a page; of a long one the end, because that part identifies the owner.
pub(crate) fn host_of(page: &Url) -> String {
    let host = page.host_str().unwrap_or_default();
    match host.char_indices().rev().nth(MAX_HOST_CHARS - 1) {
        Some((start, _)) if start > 0 => format!("…{}", &host[start..]),
        _ => host.to_owned(),
    }
}

/// Upper bound on pages that a hint names.
const MAX_PAGES: usize = 3;
/// Upper bound on shown characters of an address in a hint: ten rows of a terminal.
const MAX_PAGE_CHARS: usize = 750;

/// Names pages, each followed by its host: the end of an address can look like another one.
pub(crate) fn name_pages(pages: &[Url]) -> Option<String> {
    let name = |page: &Url| {
        let host = host_of(page);
        match page.as_str().len() <= MAX_PAGE_CHARS {
            true => format!("{page} (a page of `{host}`)"),
            false => format!("a page of `{host}`, whose address is too long to be shown"),
        }
    };
    let named: Vec<String> = pages.iter().take(MAX_PAGES).map(name).collect();
    let more = pages.len().saturating_sub(MAX_PAGES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!named.is_empty()).then(|| named.join(", ") + &more)
}

fn fields(params: &[u8]) -> Result<Vec<ElicitationField>, String> {
    let Some(schema) = ostler_wire::member(params, "requestedSchema") else { return Ok(Vec::new()) };
    let properties = ostler_wire::member(schema, "properties").and_then(ostler_wire::all_members);
    let required = ostler_wire::member(schema, "required");
    let required: Vec<String> = required.and_then(|raw| serde_json::from_slice(raw).ok()).unwrap_or_default();
    let properties = properties.unwrap_or_default();
    if properties.len() > MAX_FIELDS {
        return Err(format!("it asks for more than {MAX_FIELDS} values"));
    }
    let field = |(name, raw): (String, &[u8])| {
        let is_required = required.contains(&name);
        ElicitationField::parse(name, raw, is_required)
    };
    properties.into_iter().map(field).collect()
}

impl ElicitationField {
    fn parse(name: String, raw: &[u8], is_required: bool) -> Result<Self, String> {
        let strange = |why: &str| format!("the field `{}` {why}", escape_line(&name));
        let property: Property =
            serde_json::from_slice(raw).map_err(|error| strange(&format!("can't be read: {error}")))?;
        let Property { min_items, max_items, min_length, max_length, minimum, maximum, .. } = property;
        let choices = property.listed.choices(property.names);
        let kind = match (property.kind.as_deref(), choices) {
            (Some("string") | None, Some(choices)) => FieldKind::One(choices),
            (Some("string"), None) => {
                FieldKind::Text { min: min_length, max: max_length, format: property.format }
            }
            (Some(kind @ ("number" | "integer")), _) => {
                FieldKind::Number { is_whole: kind == "integer", min: minimum, max: maximum }
            }
            (Some("boolean"), _) => FieldKind::Boolean,
            (Some("array"), _) => {
                let choices = property.items.unwrap_or_default().choices(None);
                let choices = choices.ok_or_else(|| strange("is a list of anything"))?;
                FieldKind::Several { choices, min: min_items, max: max_items }
            }
            _ => return Err(strange("is no text, number, boolean or choice")),
        };
        let is_long = matches!(&kind, FieldKind::One(choices) | FieldKind::Several { choices, .. } if choices.len() > MAX_OPTIONS);
        if is_long {
            return Err(strange("offers too many values"));
        }
        let (title, description) = (property.title, property.description);
        let mut field = Self { name, title, description, is_required, default: None, kind };
        field.default = property.default.filter(|value| field.check(value).is_ok());
        Ok(field)
    }

    /// Returns the name for people.
    pub(crate) fn label(&self) -> &str {
        self.title.as_deref().filter(|title| !title.trim().is_empty()).unwrap_or(&self.name)
    }

    /// Describes the valid input.
    pub(crate) fn input_hint(&self) -> String {
        let between = |min: Option<String>, max: Option<String>| match (min, max) {
            (Some(min), Some(max)) => format!(" from {min} to {max}"),
            (Some(min), None) => format!(" from {min} on"),
            (None, Some(max)) => format!(" up to {max}"),
            (None, None) => String::new(),
        };
        let text = |number: &Option<f64>| number.map(|number| number.to_string());
        match &self.kind {
            FieldKind::Text { format: Some(format), .. } => escape_line(format),
            FieldKind::Text { min: Some(min @ 2..), max: Some(max), .. } => {
                format!("{min} to {max} characters")
            }
            FieldKind::Text { max: Some(max), .. } => format!("at most {max} characters"),
            FieldKind::Text { min: Some(min @ 2..), .. } => format!("at least {min} characters"),
            FieldKind::Text { .. } => "text".into(),
            FieldKind::Number { is_whole: true, min, max } => {
                format!("whole number{}", between(text(min), text(max)))
            }
            FieldKind::Number { min, max, .. } => format!("number{}", between(text(min), text(max))),
            FieldKind::Boolean => "y or n".into(),
            FieldKind::One(choices) => format!("1 to {}", choices.len()),
            FieldKind::Several { choices, .. } => format!("some of 1 to {}, with commas", choices.len()),
        }
    }

    /// Returns the options, numbered.
    pub(crate) fn options(&self) -> Vec<String> {
        let (FieldKind::One(choices) | FieldKind::Several { choices, .. }) = &self.kind else {
            return Vec::new();
        };
        let named = |(at, choice): (usize, &Choice)| format!("{}) {}", at + 1, escape_line(&choice.title));
        choices.iter().enumerate().map(named).collect()
    }

    /// Returns the default as it would be typed.
    pub(crate) fn shown_default(&self) -> Option<String> {
        let (FieldKind::One(choices) | FieldKind::Several { choices, .. }) = &self.kind else {
            return Some(match self.default.as_ref()? {
                Value::String(text) => escape_line(text),
                Value::Bool(is_true) => if *is_true { "y" } else { "n" }.into(),
                other => other.to_string(),
            });
        };
        let chosen: Vec<&str> = match self.default.as_ref()? {
            Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
            other => other.as_str().into_iter().collect(),
        };
        let is_chosen = |choice: &&Choice| chosen.contains(&choice.value.as_str());
        Some(choices.iter().filter(is_chosen).map(|it| escape_line(&it.title)).collect::<Vec<_>>().join(", "))
    }

    /// Reads what was typed.
    ///
    /// # Errors
    ///
    /// Says what is wrong with it.
    pub(crate) fn parse_input(&self, typed: &str) -> Result<Value, String> {
        let word = typed.trim();
        let value = match &self.kind {
            FieldKind::Text { .. } => Value::String(typed.to_owned()),
            FieldKind::Number { .. } => {
                let number = serde_json::from_str(word).ok().filter(Value::is_number);
                number.ok_or("that is no number")?
            }
            FieldKind::Boolean => match word.to_lowercase().as_str() {
                "y" | "yes" | "true" | "1" => Value::Bool(true),
                "n" | "no" | "false" | "0" => Value::Bool(false),
                _ => return Err("answer y or n".into()),
            },
            FieldKind::One(choices) => Value::String(find_choice(choices, word)?),
            FieldKind::Several { choices, .. } => {
                let mut picked: Vec<String> = Vec::new();
                for word in word.split(',').map(str::trim).filter(|word| !word.is_empty()) {
                    let value = find_choice(choices, word)?;
                    if !picked.contains(&value) {
                        picked.push(value);
                    }
                }
                picked.into()
            }
        };
        self.check(&value)?;
        Ok(value)
    }

    fn check(&self, value: &Value) -> Result<(), String> {
        let is_known =
            |choices: &[Choice], it: &Value| choices.iter().any(|choice| it.as_str() == Some(&choice.value));
        let fits = match (&self.kind, value) {
            (FieldKind::Text { min, max, format }, Value::String(text)) => {
                let length = text.chars().count() as u64;
                within(length, *min, *max, "characters")?;
                format.as_deref().map_or(Ok(()), |format| check_format(format, text))?;
                true
            }
            (FieldKind::Number { is_whole, min, max }, Value::Number(number)) => {
                let number = number.as_f64().ok_or("that number is too large")?;
                if *is_whole && number.fract() != 0.0 {
                    return Err("that is no whole number".into());
                }
                if min.is_some_and(|min| number < min) || max.is_some_and(|max| number > max) {
                    return Err(format!("it must be a {}", self.input_hint()));
                }
                true
            }
            (FieldKind::Boolean, Value::Bool(_)) => true,
            (FieldKind::One(choices), it) => is_known(choices, it),
            (FieldKind::Several { choices, min, max }, Value::Array(items)) => {
                within(items.len() as u64, *min, *max, "of them")?;
                items.iter().all(|it| is_known(choices, it))
            }
            _ => false,
        };
        if fits { Ok(()) } else { Err("that is none of the values".into()) }
    }
}

impl ChoiceList {
    fn choices(self, names: Option<Vec<String>>) -> Option<Vec<Choice>> {
        if let Some(titled) = self.one_of.or(self.any_of) {
            let choice = |it: TitledChoice| Choice {
                title: it.title.unwrap_or_else(|| it.r#const.clone()),
                value: it.r#const,
            };
            return Some(titled.into_iter().map(choice).collect());
        }
        let values = self.values?;
        let mut names = names.unwrap_or_default().into_iter();
        let choice = |value: String| Choice { title: names.next().unwrap_or_else(|| value.clone()), value };
        Some(values.into_iter().map(choice).collect())
    }
}

/// Finds an option by its value, its title or its number.
fn find_choice(choices: &[Choice], word: &str) -> Result<String, String> {
    let exact = choices.iter().find(|choice| choice.value == word || choice.title == word);
    let numbered = || choices.get(word.parse::<usize>().ok()?.checked_sub(1)?);
    let found = exact.or_else(numbered).map(|choice| choice.value.clone());
    found.ok_or_else(|| {
        format!("`{}` is none of them; type a number from 1 to {}", escape_line(word), choices.len())
    })
}

fn within(number: u64, min: Option<u64>, max: Option<u64>, what: &str) -> Result<(), String> {
    match (min, max) {
        (Some(min), _) if number < min => Err(format!("it must be at least {min} {what}")),
        (_, Some(max)) if number > max => Err(format!("it must be at most {max} {what}")),
        _ => Ok(()),
    }
}

fn check_format(format: &str, text: &str) -> Result<(), String> {
    let is_email = || {
        let parts = text.split_once('@');
        parts.is_some_and(|(user, host)| !user.is_empty() && !host.is_empty() && !host.contains('@'))
            && !text.contains(char::is_whitespace)
    };
    let (fits, wanted) = match format {
        "email" => (is_email(), "an email address, such as ada@example.org"),
        "uri" => (Url::parse(text).is_ok(), "a URI, such as https://example.org/"),
        "date" => (NaiveDate::parse_from_str(text, "%Y-%m-%d").is_ok(), "a date, such as 2026-07-28"),
        "date-time" => (DateTime::parse_from_rfc3339(text).is_ok(), "a time, such as 2026-07-28T12:00:00Z"),
        // An unknown format is for the server to check.
        _ => return Ok(()),
    };
    if fits { Ok(()) } else { Err(format!("it must be {wanted}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(schema: &str) -> ElicitationField {
        ElicitationField::parse("f".into(), schema.as_bytes(), true).unwrap()
    }

    fn read(schema: &str, typed: &str) -> Result<Value, String> {
        field(schema).parse_input(typed)
    }

    #[test]
    fn what_is_typed_takes_the_type_that_is_asked_for() {
        let table = [
            (r#"{"type":"string"}"#, "12", json!("12")),
            (r#"{"type":"number"}"#, " 1.5 ", json!(1.5)),
            (r#"{"type":"integer"}"#, "-3", json!(-3)),
            (r#"{"type":"boolean"}"#, "Yes", json!(true)),
            (r#"{"type":"boolean"}"#, "n", json!(false)),
            (r#"{"type":"string","enum":["a","b"],"enumNames":["Ann","Bob"]}"#, "2", json!("b")),
            (r#"{"type":"string","enum":["a","b"],"enumNames":["Ann","Bob"]}"#, "Ann", json!("a")),
            (r#"{"type":"string","enum":["2","1"]}"#, "1", json!("1")),
            (r#"{"type":"string","oneOf":[{"const":"r","title":"Red"}]}"#, "Red", json!("r")),
            (
                r#"{"type":"array","items":{"type":"string","enum":["a","b","c"]}}"#,
                "3, a,3",
                json!(["c", "a"]),
            ),
            (r#"{"type":"array","items":{"anyOf":[{"const":"x","title":"X"}]}}"#, "1", json!(["x"])),
        ];
        for (schema, typed, want) in table {
            assert_eq!(read(schema, typed), Ok(want), "{schema} {typed}");
        }
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let table = [
            (r#"{"type":"string","minLength":3}"#, "ab"),
            (r#"{"type":"string","maxLength":1}"#, "ab"),
            (r#"{"type":"string","format":"email"}"#, "ada"),
            (r#"{"type":"string","format":"date"}"#, "2026-13-01"),
            (r#"{"type":"string","format":"date-time"}"#, "2026-07-28"),
            (r#"{"type":"string","format":"uri"}"#, "no uri"),
            (r#"{"type":"number","minimum":1}"#, "0"),
            (r#"{"type":"integer","maximum":9}"#, "10"),
            (r#"{"type":"integer"}"#, "1.5"),
            (r#"{"type":"integer"}"#, "\"1\""),
            (r#"{"type":"boolean"}"#, "maybe"),
            (r#"{"type":"string","enum":["a"]}"#, "0"),
            (r#"{"type":"array","items":{"enum":["a","b"]},"minItems":2}"#, "a"),
            (r#"{"type":"array","items":{"enum":["a","b"]},"maxItems":1}"#, "a,b"),
        ];
        for (schema, typed) in table {
            assert!(read(schema, typed).is_err(), "{schema} {typed}");
        }
    }

    #[test]
    fn a_default_that_does_not_fit_is_none() {
        assert_eq!(field(r#"{"type":"integer","default":3}"#).shown_default().as_deref(), Some("3"));
        assert_eq!(field(r#"{"type":"integer","default":"3"}"#).shown_default(), None);
        assert_eq!(field(r#"{"enum":["a"],"default":"b"}"#).shown_default(), None);
    }

    #[test]
    fn what_can_not_be_asked_at_a_terminal_is_refused() {
        for params in [
            r#"{"requestedSchema":{"properties":{"a":{"type":"object"}}}}"#,
            r#"{"requestedSchema":{"properties":{"a":{"type":"array","items":{"type":"string"}}}}}"#,
            r#"{"mode":"url","url":"javascript:alert(1)"}"#,
            &format!(r#"{{"mode":"url","url":"https://a.example/{}"}}"#, "a".repeat(2048)),
            r#"{"mode":"url"}"#,
            r#"{"mode":"dance"}"#,
            "[]",
        ] {
            assert!(Elicitation::parse(params.as_bytes()).is_err(), "{params}");
        }
    }

    #[test]
    fn a_long_host_is_shown_by_its_end() {
        let host = |url: &str| host_of(&Url::parse(url).unwrap());
        assert_eq!(host("https://github.com@evil.example/https://github.com"), "evil.example");
        let long = host(&format!("https://github.com.{}.evil.example/", "a".repeat(60)));
        assert!(long.starts_with("…a") && long.ends_with("a.evil.example"), "{long}");
        assert_eq!(long.chars().count(), MAX_HOST_CHARS + 1);
    }

    #[test]
    fn a_hint_names_some_pages_each_with_its_host_at_the_end() {
        let page = |url: &str| Url::parse(url).unwrap();
        let one = page("https://evil.example/?https://github.com/login");
        let named = name_pages(std::slice::from_ref(&one)).unwrap();
        assert_eq!(named, "https://evil.example/?https://github.com/login (a page of `evil.example`)");
        let long = page(&format!("https://evil.example/{}https://github.com", "a".repeat(MAX_PAGE_CHARS)));
        let named = name_pages(&[long]).unwrap();
        assert_eq!(named, "a page of `evil.example`, whose address is too long to be shown");
        let many = name_pages(&vec![one; MAX_PAGES + 2]).unwrap();
        assert!(many.ends_with("(a page of `evil.example`) and 2 more"), "{many}");
        assert_eq!(name_pages(&[]), None);
    }

    #[test]
    fn an_error_names_pages_of_the_web_and_no_others() {
        let error = br#"{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url","url":"https://a.example/1"},{"url":"file:///x"}]}}"#;
        let pages: Vec<String> = required_pages(error).iter().map(ToString::to_string).collect();
        assert_eq!(pages, ["https://a.example/1"]);
        assert!(required_pages(br#"{"code":-32042,"data":7}"#).is_empty());
    }

    #[test]
    fn fields_stand_in_the_order_of_the_server() {
        let params = br#"{"message":"m","requestedSchema":{"properties":{"z":{"type":"string"},"a":{"type":"string"}},"required":["a"]}}"#;
        let Ok(Elicitation::Form { fields, .. }) = Elicitation::parse(params) else { panic!() };
        let shown: Vec<_> = fields.iter().map(|field| (field.name.as_str(), field.is_required)).collect();
        assert_eq!(shown, [("z", false), ("a", true)]);
    }
}

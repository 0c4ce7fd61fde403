//! Phrases of attacks, as a table.
//!
//! Forms are regular expressions over one folded sentence: lower case, one space between words. `…` matches
//! anything in between. There are few on purpose: each is a phrase that poisoned tools use and honest ones
//! rarely need. An attack that avoids all of them still has to pass a reviewer and a pin.

use regex_lite::{Match, Regex};

use super::texts::{DefinitionText, TextRole};
use super::{LintKind, LintLevel};

/// Longest match, in bytes: words further apart do not belong together.
pub(super) const MAX_MATCH: usize = 200;

/// Distance before a match in which a negation is searched.
const NEGATION_WINDOW: usize = 80;

/// One row of the table.
#[derive(Debug)]
pub(super) struct LintPattern {
    pub(super) kind: LintKind,
    pub(super) level: LintLevel,
    pub(super) scope: PatternScope,
    pub(super) regex: &'static str,
    /// True if a preceding "not" makes it harmless.
    pub(super) negatable: bool,
    /// Words in the match that make it harmless.
    pub(super) unless: &'static [&'static str],
    pub(super) why: &'static str,
}

/// The texts that a row is matched against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PatternScope {
    /// Everything but keys and links.
    Prose,
    /// Prose and the words of keys.
    Anywhere,
    /// Keys, as they are written.
    Key,
    /// A parameter: its name, a colon and its description.
    Parameter,
}

impl PatternScope {
    pub(super) fn includes(self, text: &DefinitionText) -> bool {
        match self {
            Self::Prose => text.role == TextRole::Prose,
            Self::Anywhere => matches!(text.role, TextRole::Prose | TextRole::Words),
            Self::Key => text.role == TextRole::Key,
            Self::Parameter => text.role == TextRole::Parameter,
        }
    }
}

impl LintPattern {
    pub(super) fn compile(&self) -> Option<Regex> {
        Regex::new(&self.regex.replace('…', ".*?")).ok()
    }

    /// Returns whether a match has the row's meaning.
    pub(super) fn applies(&self, sentence: &str, found: &Match<'_>) -> bool {
        found.len() <= MAX_MATCH
            && !(self.negatable && is_negated(&sentence[..found.start()]))
            && !self.unless.iter().any(|word| found.as_str().contains(word))
    }
}

fn is_negated(before: &str) -> bool {
    let from = before.ceil_char_boundary(before.len().saturating_sub(NEGATION_WINDOW));
    let words =
        ["not", "never", "don't", "dont", "avoid", "without", "no", "cannot", "can't", "won't", "nor"];
    before[from..].split([' ', ',', '(']).any(|word| words.contains(&word))
}

const fn alarm(kind: LintKind, form: &'static str, why: &'static str) -> LintPattern {
    LintPattern {
        kind,
        level: LintLevel::Alarm,
        scope: PatternScope::Prose,
        regex: form,
        negatable: false,
        unless: &[],
        why,
    }
}

const fn notice(kind: LintKind, form: &'static str, why: &'static str) -> LintPattern {
    LintPattern {
        kind,
        level: LintLevel::Notice,
        scope: PatternScope::Prose,
        regex: form,
        negatable: false,
        unless: &[],
        why,
    }
}

impl LintPattern {
    const fn at(mut self, place: PatternScope) -> Self {
        self.scope = place;
        self
    }

    const fn unless(mut self, words: &'static [&'static str]) -> Self {
        self.unless = words;
        self
    }

    const fn negatable(mut self) -> Self {
        self.negatable = true;
        self
    }
}

pub(super) const PATTERNS: &[LintPattern] = &[
    // Markup
    alarm(
        LintKind::Markup,
        r"</?(important|system|secret|hidden|instructions?|critical|admin|override|assistant|urgent|priority|confidential|internal|sudo)\b[^<>]{0,40}>",
        "a tag like this speaks to the model and is not shown by many clients",
    ),
    alarm(LintKind::Markup, r"<!--", "a comment is read by the model and not shown by many clients"),
    alarm(
        LintKind::Markup,
        r"<\|(im_start|im_end|system|user|assistant|endoftext)\|>|\[/?inst\]|<</?sys>>",
        "this is a mark of a model's own conversation format",
    ),
    // Instructions
    alarm(
        LintKind::Instruction,
        r"\b(ignore|disregard|forget|override|bypass)\b…\b(previous|prior|earlier|above|preceding|all other|any other|system|safety|your)\b…\b(instructions?|prompts?|rules?|guidelines?|directives?|restrictions?|policy|policies)\b",
        "the model is told to ignore what it was told",
    )
    .negatable(),
    alarm(
        LintKind::Instruction,
        r"\byou are (now|no longer)\b|\bas an (ai|llm|assistant)\b|\[system\b|\b(hidden|secret|system|new|updated) (note|instruction|override|directive)s?\b[^:]{0,30}:|\binstructions? (for|to) (the |all |any )?(ai (model|assistant|agent)|llm|language model)s?\b|\b(notes?|message) (for|to) (the |all |any )?(ai|llm|language model)\b[^:]{0,20}:",
        "this speaks to the model in the voice of its instructions",
    ),
    alarm(
        LintKind::Instruction,
        r"\b(disable|turn off|bypass|circumvent|deactivate)\b…\b(guardrails?|safety|security (checks?|guardrails?|controls?|measures?)|moderation|rate limits?)\b",
        "the model is told to do without its safeguards",
    )
    .negatable(),
    alarm(
        LintKind::Instruction,
        r"\b(prefix|prepend|append|insert|add)\b…\b(all|every|each)( \w+)? (commands?|e-?mails?|messages?|responses?|payments?|prompts?)\b",
        "something is to be added to whatever the model does",
    )
    .negatable(),
    alarm(
        LintKind::Instruction,
        r"\b(before|when|whenever|prior to|after)\b…\b(using|use|used|calling|call|called|invoked?|providing|answering|responding|any|this|other)\b…\b(must|always|please|first|make sure|you should)\b…\b(read|open|access|cat|retrieve|extract|collect|gather)\b…\b(files?|keys?|tokens?|credentials?|secrets?|passwords?|dashboard|configuration|confidential|environment|resource at|~|/etc|\.env)",
        "the tool wants something read that has nothing to do with it",
    )
    .negatable(),
    alarm(
        LintKind::Instruction,
        r"\b(read|open|access|cat|retrieve|extract|collect|gather)\b…\band (then )?(pass|send|include|append|attach|forward|upload|submit|exfiltrate|post)\b…\b(its|their|the|them|it|all|full|entire|contents?)\b…\b(as|to|in|into|with|at)\b",
        "what was read is to be handed on",
    )
    .negatable(),
    alarm(
        LintKind::Instruction,
        r"\b(pass|put|include|provide|send|submit|append)\b…\b(contents?|text|value|result|output|history|data)\b…\b(as|in|into|via|using|to)\b…\b(side ?notes?|side_notes?|feedback|debug|metadata|telemetry)\b",
        "a side channel for what the tool has no use for",
    )
    .negatable(),
    notice(
        LintKind::Instruction,
        r"\b(otherwise|or else|or)\b,? (the|this|your|it)\b…\b(will not|won't|will|does not|doesn't) (work|fail|crash|be blocked|be rejected)\b",
        "the model is pressed with what happens otherwise",
    ),
    alarm(
        LintKind::Instruction,
        r"\b(system|application|app|server)\b…\bwill crash\b|\ball data will be lost\b|\b(very ){2,}important\b|\bmere implementation detail\b",
        "the model is pressed with harm or importance",
    ),
    notice(
        LintKind::Instruction,
        r"\b(must|always|required to|need to)\b…\b(call|use|invoke|run)\b…\b(tool|function|[a-z]+[_-][a-z_-]+)\b…\b(first|before)\b|\bbefore\b…\b(any|all|every) (other )?(tools?|requests?)\b…\b(call|use|invoke|run)\b",
        "the model is told what to call first",
    ),
    // Concealment
    alarm(
        LintKind::Concealment,
        r"\b(do not|don't|dont|never|must not|should not|without|avoid|no need to)( \w+){0,3} (tell(ing)?|mention(ing)?|inform(ing)?|notify(ing)?|reveal(ing)?|disclos(e|ing)|alert(ing)?|acknowledg(e|ing))\b…\b(users?|humans?|operators?|them|anyone|this|that you|that it|you're|you are)\b",
        "something is to be kept from the user",
    ),
    alarm(
        LintKind::Concealment,
        r"\b(do not|don't|never) (show|display|expose|surface|share)( this| it| these| them)? (to|with) (the )?(user|human|operator)s?\b",
        "something is to be kept from the user",
    ),
    alarm(
        LintKind::Concealment,
        r"\bwithout (the |a )?user('s)?\b…\b(knowing|knowledge|noticing|consent|awareness|permission|approval)\b|\b(secretly|covertly|surreptitiously)\b|\b(hide|conceal|keep) (this|it|that)\b…\bfrom (the )?(user|human|operator)",
        "something is to happen behind the user's back",
    )
    .negatable(),
    alarm(
        LintKind::Concealment,
        r"\b(present|format|disguise|make)\b…\b(as if|as though|to look like|appear as|appear like)\b",
        "something is to be passed off as something else",
    )
    .negatable(),
    // Shadowing
    alarm(
        LintKind::Shadowing,
        r"\b(side effects?|effects?|influences?|rules?) (on|for|over)\b…\b(other|also present|existing|all|any)\b…\btools?\b",
        "this tool claims an effect on other tools",
    ),
    alarm(
        LintKind::Shadowing,
        r"\b(when|whenever|if|every time|any time)\b…\b(available|present|invoked|called|used|sending|sends?|installed)\b…\b(must|make sure|always|change|replace|redirect|instead)\b…\b(send|sent|recipients?|destination|address|receiver|bcc|cc|forward|to:)\b",
        "this is a rule for what other tools do",
    ),
    alarm(
        LintKind::Shadowing,
        r"\b(change|replace|redirect|rewrite|swap|set|add)\b…\b(recipients?|destination (address|number|account)|receiver|beneficiary|bcc)\b|\bbcc\b…\b(every|all|each|any)\b",
        "a recipient is to be changed or added",
    )
    .negatable(),
    alarm(
        LintKind::Shadowing,
        r"\b(all|any|every|each) (e-?mails?|messages?|payments?|transfers?|requests?)\b…\b(must|should|to be|are|need to be)\b…\b(sent|routed|copied|forwarded|proxied|redirected)\b",
        "everything is to be sent somewhere",
    ),
    notice(
        LintKind::Shadowing,
        r"\b(instead of|rather than|over|precedence|priority|supersedes?|replaces?|do not use|never use|don't use)\b…\b(other|any other|all other|similar|existing|alternative)\b…\btools?\b",
        "this tool wants to be used instead of others",
    ),
    // Secrets
    alarm(
        LintKind::Secret,
        r"\b(read|reads|reading|open|cat|access|include|pass|send|upload|content|contents|load|get|fetch|copy|dump)\b…(\.ssh\b|\bssh (private |rsa )?keys?\b|\bssh id rsa\b|\bid[_ ]?(rsa|ed25519)\b|\.aws/|\.kube/config|\.netrc\b|\.npmrc\b|\.pgpass\b|\.gnupg\b|/etc/(passwd|shadow)\b|\bmcp(_config)?\.json\b|claude_desktop_config|\.cursor/|\.bash_history|\bkeychain\b|\bwallet\.dat\b|[ /'(]\.env([ ,;:')]|\.?$))",
        "a file that holds secrets is to be read",
    )
    .at(PatternScope::Anywhere)
    .negatable(),
    alarm(
        LintKind::Secret,
        r"\b(extract|include|send|pass|append|return|collect|leak|exfiltrate|list|reveal|share|retrieve|access)\b…\b(api[ _-]?keys?|passwords?|credentials?|private keys?|secrets|secret keys?|access tokens?|session tokens?|seed phrases?)\b…\b(in|as|to|with|into)\b…\b(your|response|answer|output|parameter|argument|field|request|message|call)\b",
        "secrets are to be handed on",
    )
    .negatable(),
    alarm(
        LintKind::Secret,
        r"\bexfiltrat(e|ing)\b|\b(leak|steal|harvest)\b…\b(them|it|credentials?|keys?|secrets?|passwords?|tokens?|data)\b",
        "this is what theft is called",
    )
    .negatable(),
    alarm(
        LintKind::Secret,
        r"\bfiles?\b…\b(passwords?|secrets?|api[ _-]?keys?|credentials?|private keys?)\b…\b(include|send|pass|append|return|upload)\b…\bcontents?\b",
        "files with secrets are to be handed on",
    )
    .negatable(),
    notice(
        LintKind::Secret,
        r"~/\.[a-z]|\bid_(rsa|ed25519)\b|(^|[ '(])\.env\b|/etc/(passwd|shadow)\b|\bmcp\.json\b|\.aws/credentials",
        "a place where secrets are kept is named",
    ),
    // Parameters
    alarm(
        LintKind::Parameter,
        r"\b(pass|put|include|provide|send|copy|insert|paste|attach|submit|record|write|fill)\b…\b(system prompt|conversation history|chat history|(full|entire|whole|complete|previous) (conversation|chat|context|messages)|previous messages|chain of thought|list of (all )?(available )?tools|other tools|all (the )?tools)\b",
        "the conversation or the model's instructions are to be handed on",
    )
    .negatable(),
    notice(
        LintKind::Parameter,
        r"^(side_?note|conversation(_?history)?|chat_?history|system_?prompt|chain_?of_?thought|previous_?messages|full_?context|model_?name|tools?_?list|available_?tools)$",
        "a parameter of this name takes what the model knows",
    )
    .at(PatternScope::Key),
    alarm(
        LintKind::Parameter,
        r"^(side_?note|conversation(_?history)?|chat_?history|system_?prompt|chain_?of_?thought|previous_?messages|(full_?)?context|tools?_?list|available_?tools|notes?|metadata|debug)\b: …\b(always|must|required|entire|full|complete|all|verbatim|every)\b…\b(conversation|prompt|messages|history|instructions|files?|tools|keys?|credentials?|secrets?|passwords?|environment)\b",
        "a parameter asks for more than the tool needs",
    )
    .at(PatternScope::Parameter),
    // Addresses
    alarm(
        LintKind::Address,
        r"https?://\S*[?&/=](\{|<|%7b|\$\{|\[)[a-z_]*(data|content|secret|token|key|history|conversation|result|base64|payload)",
        "an address with a place for data",
    ),
    alarm(
        LintKind::Address,
        r"\b(webhook\.site|requestbin|ngrok(-free)?\.(io|app|dev)|pipedream\.net|burpcollaborator|interact\.sh|oast\.(fun|me|pro|live)|hookbin)\b",
        "this service collects whatever is sent to it",
    ),
    alarm(
        LintKind::Address,
        r"\b(send|post|upload|forward|report|transmit|exfiltrate)\b…\b(output|results?|responses?|contents?|data|query|conversation|history|everything|them)\b…\bto\b…https?://|\b(export|dump|copy|exfiltrate)\b…\ball\b…\b(user|customer|private|personal) data\b",
        "data is to be sent somewhere",
    )
    .negatable(),
    alarm(
        LintKind::Address,
        r"\b(send|sent|forward|forwarded|bcc|cc|copy|email|mail|report|upload|post)\b…\bto\b( \S+){0,3} [a-z0-9._+-]+@[a-z0-9-]+\.[a-z]{2,}",
        "a recipient is written into the definition",
    )
    .unless(&["@example.", "such as", "e.g.", "@test."]),
    alarm(
        LintKind::Address,
        r"\b(curl|wget)\b[^|]*\| ?(sudo )?((ba|z)?sh|python3?|node|perl)\b|\b(curl|wget)\b…(-d|--data|--post-data|-f) ",
        "a command that sends data or runs what it fetches",
    ),
];

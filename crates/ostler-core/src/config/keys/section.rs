//! `section!`: one line per key makes the field of the struct, its default, its row in the table and its
//! reader.
//!
//! ```text
//! section! {
//!     /// Limits of the cache, over all servers.
//!     #[derive(Debug, Clone, Copy, PartialEq, Eq)]
//!     pub struct CacheConfig("cache", default) {
//!         /// Bytes in all.
//!         max_bytes: usize = size(0.., "64MiB");
//!     }
//! }
//! ```
//!
//! A line is `field: Type = form;`. The [`form`](kind) names the values the file may hold and the default.
//! The type decides how the value is read ([`ReadValue`](super::ReadValue)), unless a function follows: `=>
//! function`. `as key` names a key that differs from its field, `, at_start` a key that a running daemon does
//! not reload.
//!
//! `rows` are keys that another function reads, `check` is a function that compares the values of several
//! keys, `given` are fields that are not keys. After its name a section lists its features: `default`
//! implements [`Default`] with the values of an empty table, `optional` does not, the keys of an `inline`
//! section are part of another one, `written` can also be written ([`WriteSection`](super::WriteSection)),
//! `plan` reports changes of `at_start` keys ([`AtStart`]).

use std::borrow::Cow;

use super::SectionSpec;
use crate::config::read::SectionReader;

/// A struct made of a section's keys.
pub(crate) trait Settings: Sized {
    const SECTION: &'static SectionSpec;

    /// Overwrites the fields that the file sets.
    fn fill(&mut self, reader: &SectionReader<'_>);

    /// Reads the whole section over its defaults.
    fn filled(mut self, reader: SectionReader<'_>) -> Self {
        reader.require_keys();
        self.fill(&reader);
        reader.finish();
        self
    }
}

/// A section with keys that a running daemon does not reload.
pub(crate) trait AtStart {
    /// Returns those keys whose values differ.
    fn changed_at_start(&self, other: &Self) -> Vec<Cow<'static, str>>;
}

/// Defines an enum whose variants are words of the config.
macro_rules! words {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $(#[$first_meta:meta])* $first:ident = $first_word:literal
            $(, $(#[$variant_meta:meta])* $variant:ident = $word:literal)* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        $vis enum $name {
            $(#[$first_meta])*
            #[default]
            $first,
            $($(#[$variant_meta])* $variant,)*
        }

        impl $crate::config::keys::ChoiceWord for $name {
            const WORDS: &'static [&'static str] = &[$first_word, $($word),*];
            const ALL: &'static [Self] = &[Self::$first, $(Self::$variant),*];
        }
    };
}

/// Defines a struct with one line per key, see [the module](self).
macro_rules! section {
    (
        $(#[$($meta:tt)*])*
        $vis:vis struct $name:ident($section:literal $(, $also:ident)*)
        $(rows $rows:ident)? $(check $check:ident)? $(given { $($given:tt)* })?
        { $($body:tt)* }
    ) => {
        section!(@struct [$(#[$($meta)*])*] $vis $name [$({ $($given)* })?] { $($body)* });
        section!(@settings [$([$($meta)*])*] $name $section [$($rows)?] [$($check)?] [$({ $($given)* })?] { $($body)* });
        section!(@each [$($also)*] $name { $($body)* });
    };
    (@each [$($also:ident)*] $name:ident $body:tt) => {
        $(section!(@$also $name $body);)*
    };
    (@struct [$($meta:tt)*] $vis:vis $name:ident [$({ $($given:tt)* })?] {
        $(
            $(#[$($attr:tt)*])*
            $field:ident $(as $key:ident)? : $ty:ty = $form:ident $(($($arg:tt)*))? $(=> $read:path)? $(, $mark:ident)?;
        )*
    }) => {
        $($meta)*
        $vis struct $name {
            $($($given)*)?
            $($(#[$($attr)*])* pub $field: $ty,)*
        }
    };
    (@settings $doc:tt $name:ident $section:literal [$($rows:ident)?] [$($check:ident)?]
        [$({ $($(#[$($given_attr:tt)*])* $given_vis:vis $given:ident : $given_ty:ty,)* })?] {
        $(
            $(#[$($attr:tt)*])*
            $field:ident $(as $key:ident)? : $ty:ty = $form:ident $(($($arg:tt)*))? $(=> $read:path)? $(, $mark:ident)?;
        )*
    }) => {
        impl $name {
            /// Returns the values of an empty section.
            pub(crate) fn preset($($($given: $given_ty),*)?) -> Self {
                Self { $($($given,)*)? $($field: $crate::config::keys::section::preset!($form $(($($arg)*))?),)* }
            }
        }

        impl $crate::config::keys::Settings for $name {
            const SECTION: &'static $crate::config::keys::SectionSpec = &$crate::config::keys::SectionSpec {
                name: $section,
                doc: $crate::config::keys::section::description!($doc),
                rows: &[
                    $($crate::config::keys::section::row!("", [] [()] several($rows)),)?
                    $($crate::config::keys::section::row!(
                        $crate::config::keys::section::key!($field $($key)?), [$([$($attr)*])*] [$ty] $form $(($($arg)*))?
                    ),)*
                ],
            };

            fn fill(&mut self, reader: &$crate::config::read::SectionReader<'_>) {
                $(
                    let key = $crate::config::keys::section::key!($field $($key)?);
                    if let Some(value) = $crate::config::keys::section::read!([$ty] $($read)?)(reader, key) {
                        self.$field = value;
                    }
                )*
                $($check(self, reader);)?
            }
        }
    };
    (@default $name:ident $body:tt) => {
        impl Default for $name {
            fn default() -> Self {
                Self::preset()
            }
        }

        section!(@optional $name $body);
    };
    (@inline $name:ident $body:tt) => {
        impl Default for $name {
            fn default() -> Self {
                Self::preset()
            }
        }

        impl $crate::config::keys::ReadValue for $name {
            fn read(reader: &$crate::config::read::SectionReader<'_>, _: &'static str) -> Option<Self> {
                use $crate::config::keys::Settings as _;
                let mut found = Self::preset();
                found.fill(reader);
                Some(found)
            }
        }
    };
    (@optional $name:ident $body:tt) => {
        impl $crate::config::keys::ReadValue for $name {
            fn read(reader: &$crate::config::read::SectionReader<'_>, key: &'static str) -> Option<Self> {
                use $crate::config::keys::Settings as _;
                reader.section(key).map(|found| Self::preset().filled(found))
            }
        }
    };
    (@written $name:ident {
        $(
            $(#[$($attr:tt)*])*
            $field:ident $(as $key:ident)? : $ty:ty = $form:ident $(($($arg:tt)*))? $(=> $read:path)? $(, $mark:ident)?;
        )*
    }) => {
        impl $crate::config::keys::WriteSection for $name {
            fn write_changed(&self, preset: &Self) -> serde_json::Map<String, serde_json::Value> {
                use $crate::config::keys::WriteValue as _;
                let mut written = serde_json::Map::new();
                $(if self.$field != preset.$field {
                    let kind = $crate::config::keys::section::kind!([$ty] $form $(($($arg)*))?);
                    let key = $crate::config::keys::section::key!($field $($key)?);
                    $crate::config::keys::insert_value(&mut written, &kind, key, self.$field.write(&kind));
                })*
                written
            }
        }
    };
    (@plan $name:ident {
        $(
            $(#[$($attr:tt)*])*
            $field:ident $(as $key:ident)? : $ty:ty = $form:ident $(($($arg:tt)*))? $(=> $read:path)? $(, $mark:ident)?;
        )*
    }) => {
        impl $crate::config::keys::AtStart for $name {
            fn changed_at_start(&self, other: &Self) -> Vec<std::borrow::Cow<'static, str>> {
                let differ = [$($crate::config::keys::section::mark!(
                    [$($mark)?] $crate::config::keys::section::key!($field $($key)?), self.$field, other.$field
                )),*];
                differ.into_iter().flatten().collect()
            }
        }
    };
}

/// Defines a list of keys that one function reads.
macro_rules! rows {
    (
        $(#[$meta:meta])*
        $vis:vis const $name:ident {
            $($(#[$($attr:tt)*])* $key:ident = $form:ident $(($($arg:tt)*))?;)*
        }
    ) => {
        $(#[$meta])*
        $vis const $name: &[$crate::config::keys::KeySpec] = &[
            $($crate::config::keys::section::row!(stringify!($key), [$([$($attr)*])*] [()] $form $(($($arg)*))?)),*
        ];
    };
}

/// The name of a key.
macro_rules! key {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $key:ident) => {
        stringify!($key)
    };
}

/// The function that reads a key.
macro_rules! read {
    ([$ty:ty]) => {
        <$ty as $crate::config::keys::ReadValue>::read
    };
    ([$ty:ty] $read:path) => {
        $read
    };
}

/// The key, if it is marked and its values differ.
macro_rules! mark {
    ([] $($rest:tt)*) => {
        None
    };
    ([at_start] $key:expr, $own:expr, $other:expr) => {
        ($own != $other).then(|| std::borrow::Cow::Borrowed($key))
    };
}

/// The first paragraph of the doc comments among attributes.
macro_rules! description {
    ([$($attr:tt)*]) => {
        $crate::config::keys::section::description!(@ [] $($attr)*)
    };
    (@ [$($line:literal)*]) => {
        concat!($($line),*).trim_ascii()
    };
    (@ [$($line:literal)*] [doc = ""] $($rest:tt)*) => {
        $crate::config::keys::section::description!(@ [$($line)*])
    };
    (@ [$($line:literal)*] [doc = r""] $($rest:tt)*) => {
        $crate::config::keys::section::description!(@ [$($line)*])
    };
    (@ [$($line:literal)*] [doc = $next:literal] $($rest:tt)*) => {
        $crate::config::keys::section::description!(@ [$($line)* $next] $($rest)*)
    };
    (@ [$($line:literal)*] [$($other:tt)*] $($rest:tt)*) => {
        $crate::config::keys::section::description!(@ [$($line)*] $($rest)*)
    };
}

/// The row of a key in the table of its section.
macro_rules! row {
    ($key:expr, $doc:tt [$ty:ty] $($form:tt)*) => {
        $crate::config::keys::KeySpec {
            key: $key,
            kind: $crate::config::keys::section::kind!([$ty] $($form)*),
            preset: $crate::config::keys::section::shown!([$ty] $($form)*),
            required: $crate::config::keys::section::required!($($form)*),
            doc: $crate::config::keys::section::description!($doc),
        }
    };
}

/// The kind of value of a form; lists all forms.
macro_rules! kind {
    ([$ty:ty] flag $($rest:tt)*) => { $crate::config::keys::ValueKind::Flag };
    ([$ty:ty] either($yes:literal, $no:literal)) => { $crate::config::keys::ValueKind::Choice(&[$yes, $no]) };
    ([$ty:ty] choice) => { $crate::config::keys::ValueKind::Choice(<$ty as $crate::config::keys::ChoiceWord>::WORDS) };
    ([$ty:ty] count($least:literal ..= $most:literal $($rest:tt)*)) => { $crate::config::keys::ValueKind::Count($least, $most) };
    ([$ty:ty] count($least:literal .. $($rest:tt)*)) => { $crate::config::keys::ValueKind::Count($least, u64::MAX) };
    ([$ty:ty] size($least:literal .. $($rest:tt)*)) => { $crate::config::keys::ValueKind::Size($least) };
    ([$ty:ty] duration($least:literal .. $($rest:tt)*)) => { $crate::config::keys::ValueKind::Duration($least) };
    ([$ty:ty] duration_or_never $($rest:tt)*) => { $crate::config::keys::ValueKind::DurationOrNever };
    ([$ty:ty] duration_or_false) => { $crate::config::keys::ValueKind::DurationOrFalse };
    ([$ty:ty] text $($rest:tt)*) => { $crate::config::keys::ValueKind::Text };
    ([$ty:ty] texts $($rest:tt)*) => { $crate::config::keys::ValueKind::Texts };
    ([$ty:ty] text_or_texts $($rest:tt)*) => { $crate::config::keys::ValueKind::TextOrTexts };
    ([$ty:ty] text_map) => { $crate::config::keys::ValueKind::TextMap };
    ([$ty:ty] section) => { $crate::config::keys::section::kind!([$ty] section($ty)) };
    ([$ty:ty] section($of:ty $(, else $value:expr)?)) => {
        $crate::config::keys::ValueKind::Section(<$of as $crate::config::keys::Settings>::SECTION)
    };
    ([$ty:ty] named($of:ty)) => {
        $crate::config::keys::ValueKind::Named(<$of as $crate::config::keys::Settings>::SECTION)
    };
    ([$ty:ty] inline) => {
        $crate::config::keys::ValueKind::Several(<$ty as $crate::config::keys::Settings>::SECTION.rows)
    };
    ([$ty:ty] several($rows:ident)) => { $crate::config::keys::ValueKind::Several($rows) };
}

/// The default that a form shows in the schema.
macro_rules! shown {
    ([$ty:ty] flag($preset:literal)) => { $crate::config::keys::DefaultValue::Flag($preset) };
    ([$ty:ty] either($yes:literal, $no:literal)) => { $crate::config::keys::DefaultValue::Text($yes) };
    ([$ty:ty] choice) => {
        $crate::config::keys::DefaultValue::Text(<$ty as $crate::config::keys::ChoiceWord>::WORDS[0])
    };
    ([$ty:ty] count($least:literal $dots:tt $($most:literal)?, $preset:literal)) => {
        $crate::config::keys::DefaultValue::Count($preset)
    };
    ([$ty:ty] $form:ident($least:literal .., $preset:literal)) => { $crate::config::keys::DefaultValue::Text($preset) };
    ([$ty:ty] $form:ident($preset:literal $(, $value:expr)?)) => { $crate::config::keys::DefaultValue::Text($preset) };
    ([$ty:ty] texts([$($preset:literal),*] $(, $value:expr)?)) => {
        $crate::config::keys::DefaultValue::Texts(&[$($preset),*])
    };
    ([$ty:ty] $($rest:tt)*) => { $crate::config::keys::DefaultValue::Nothing };
}

/// The value that a form gives an absent key. `else` is used where the schema can't show it.
macro_rules! preset {
    (flag($preset:literal)) => { $preset };
    (either($yes:literal, $no:literal)) => { true };
    (count($least:literal $dots:tt $($most:literal)?, $preset:literal)) => { $preset };
    (size($least:literal .., $preset:literal)) => { $crate::config::keys::default_size($preset) };
    (duration($least:literal .., $preset:literal)) => { $crate::config::keys::default_duration($preset) };
    (duration_or_never($preset:literal)) => { Some($crate::config::keys::default_duration($preset)) };
    (text($preset:literal)) => { String::from($preset) };
    (text($preset:literal, $value:expr)) => { $value };
    (texts([$($preset:literal),*])) => { vec![$(String::from($preset)),*] };
    (texts([$($preset:literal),*], $value:expr)) => { $value };
    ($form:ident($($least:literal ..,)? $(required $hint:literal,)? else $value:expr)) => { $value };
    (section($of:ty, else $value:expr)) => { $value };
    ($($rest:tt)*) => { Default::default() };
}

/// The hint of a required key.
macro_rules! required {
    ($form:ident($($least:literal ..,)? required $hint:literal $($rest:tt)*)) => {
        Some($hint)
    };
    ($($rest:tt)*) => {
        None
    };
}

pub(crate) use {description, key, kind, mark, preset, read, required, row, rows, section, shown, words};

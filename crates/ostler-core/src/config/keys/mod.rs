//! Keys: the macros that declare them, the table they make, and the types of their values.

mod json_schema;
mod key_spec;
pub(crate) mod section;
mod value;

pub use json_schema::schema;
pub(crate) use key_spec::{DefaultValue, KeySpec, SectionSpec, ValueKind};
pub(crate) use section::{AtStart, Settings};
pub(crate) use value::{
    ChoiceWord, ReadValue, WriteSection, WriteValue, default_duration, default_size, insert_value,
};

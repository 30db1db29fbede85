//! What a configuration key is: type, default, range, where else it may be set, one line of
//! documentation.
//!
//! Owns the shape of a key table ([`ConfigDef`]), the parsing and checking of values, and the table
//! of topic keys ([`topic`]). The broker's and the mirror's tables live in their own rooms and use
//! the same shape, so that parsing, validation, DescribeConfigs and the documentation all read one
//! table. Does not own where values are stored ([`crate::Image`]) nor how they take effect.

mod synonym;
pub mod topic;
mod validator;

pub use synonym::{BrokerSynonym, Unit};
pub use validator::Validator;

/// The type of a configuration value; the code is the one of DescribeConfigs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum ConfigType {
    /// `true` or `false`, any case.
    Boolean = 1,
    /// Free text.
    String = 2,
    /// 32-bit integer.
    Int = 3,
    /// 16-bit integer.
    Short = 4,
    /// 64-bit integer.
    Long = 5,
    /// 64-bit float.
    Double = 6,
    /// Comma-separated values, blanks around each are dropped.
    List = 7,
    /// Name of a Java class; kept as text.
    Class = 8,
    /// Text that is never shown.
    Password = 9,
}

impl ConfigType {
    /// Code of this type in DescribeConfigs responses.
    pub const fn code(self) -> i8 {
        self as i8
    }
}

/// How much an operator should care about a key; Kafka's three levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Importance {
    /// Needs a thought before production.
    High,
    /// Worth knowing.
    Medium,
    /// Leave it alone.
    Low,
}

/// A parsed configuration value.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigValue {
    /// A boolean.
    Boolean(bool),
    /// Int, Short and Long.
    Integer(i64),
    /// A double.
    Double(f64),
    /// String, Class and Password.
    Text(String),
    /// Trimmed elements of a list; empty for an empty string.
    List(Vec<String>),
}

impl ConfigValue {
    /// The integer inside, if it is one.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Integer(v) => Some(*v),
            _ => None,
        }
    }

    /// The boolean inside, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Boolean(v) => Some(*v),
            _ => None,
        }
    }
}

/// Why a value was refused; the text is complete and is shown to the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid value {value} for configuration {name}: {reason}")]
pub struct InvalidConfig {
    /// The key.
    pub name: String,
    /// The value as it was given; `[hidden]` for sensitive keys.
    pub value: String,
    /// What is wrong with it and what is allowed.
    pub reason: String,
}

/// One configuration key. Built as a constant with [`ConfigDef::new`] and the `const` setters.
#[derive(Clone, Copy, Debug)]
pub struct ConfigDef {
    /// Kafka's name of the key.
    pub name: &'static str,
    /// Type of its value.
    pub kind: ConfigType,
    /// Default in text form; `None` where Kafka's default is null.
    pub default: Option<&'static str>,
    /// Allowed values beyond the type.
    pub validator: Validator,
    /// True if a change takes effect without a restart.
    pub dynamic: bool,
    /// True if the value is never shown (passwords).
    pub sensitive: bool,
    /// Kafka's importance level.
    pub importance: Importance,
    /// Broker keys that give the default of this (topic) key, the strongest first.
    pub synonyms: &'static [BrokerSynonym],
    /// One line, in our own words.
    pub doc: &'static str,
}

impl ConfigDef {
    /// A key with no range, dynamic, not sensitive, of medium importance.
    pub const fn new(
        name: &'static str,
        kind: ConfigType,
        default: Option<&'static str>,
        doc: &'static str,
    ) -> Self {
        Self {
            name,
            kind,
            default,
            validator: Validator::Any,
            dynamic: true,
            sensitive: matches!(kind, ConfigType::Password),
            importance: Importance::Medium,
            synonyms: &[],
            doc,
        }
    }

    /// Sets the allowed range.
    pub const fn valid(mut self, validator: Validator) -> Self {
        self.validator = validator;
        self
    }

    /// Sets the importance.
    pub const fn importance(mut self, importance: Importance) -> Self {
        self.importance = importance;
        self
    }

    /// Sets the broker keys that give this key's default.
    pub const fn synonyms(mut self, synonyms: &'static [BrokerSynonym]) -> Self {
        self.synonyms = synonyms;
        self
    }

    /// Marks a key that is read only at start.
    pub const fn read_only(mut self) -> Self {
        self.dynamic = false;
        self
    }

    /// Marks a value that is never shown.
    pub const fn sensitive(mut self) -> Self {
        self.sensitive = true;
        self
    }

    /// Parses and checks one value.
    pub fn parse(&self, raw: &str) -> Result<ConfigValue, InvalidConfig> {
        let value = parse_kind(self.kind, raw).map_err(|reason| self.invalid(raw, reason))?;
        self.validator
            .check(&value)
            .map_err(|reason| self.invalid(raw, reason))?;
        Ok(value)
    }

    /// The allowed values in words, for error texts and documentation; empty when the type says
    /// all.
    pub fn range_text(&self) -> String {
        self.validator.text()
    }

    fn invalid(&self, raw: &str, reason: String) -> InvalidConfig {
        let value = if self.sensitive {
            "[hidden]".to_owned()
        } else {
            raw.to_owned()
        };
        InvalidConfig {
            name: self.name.to_owned(),
            value,
            reason,
        }
    }
}

/// Splits a list value as Kafka does: commas, blanks around elements dropped, the empty string is
/// the empty list.
pub fn split_list(raw: &str) -> Vec<String> {
    if raw.trim().is_empty() {
        return Vec::new();
    }
    raw.split(',')
        .map(|element| element.trim().to_owned())
        .collect()
}

fn parse_kind(kind: ConfigType, raw: &str) -> Result<ConfigValue, String> {
    let trimmed = raw.trim();
    match kind {
        ConfigType::Boolean => match trimmed.to_ascii_lowercase().as_str() {
            "true" => Ok(ConfigValue::Boolean(true)),
            "false" => Ok(ConfigValue::Boolean(false)),
            _ => Err("must be true or false".to_owned()),
        },
        ConfigType::Int => parse_integer(trimmed, i64::from(i32::MIN), i64::from(i32::MAX)),
        ConfigType::Short => parse_integer(trimmed, i64::from(i16::MIN), i64::from(i16::MAX)),
        ConfigType::Long => parse_integer(trimmed, i64::MIN, i64::MAX),
        ConfigType::Double => match trimmed.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(ConfigValue::Double(number)),
            _ => Err("must be a number".to_owned()),
        },
        ConfigType::String | ConfigType::Class => Ok(ConfigValue::Text(trimmed.to_owned())),
        ConfigType::Password => Ok(ConfigValue::Text(raw.to_owned())),
        ConfigType::List => Ok(ConfigValue::List(split_list(raw))),
    }
}

fn parse_integer(raw: &str, min: i64, max: i64) -> Result<ConfigValue, String> {
    match raw.parse::<i64>() {
        Ok(number) if (min..=max).contains(&number) => Ok(ConfigValue::Integer(number)),
        _ => Err(format!("must be a whole number between {min} and {max}")),
    }
}

/// Finds a key in a table.
pub fn find<'a>(table: &'a [ConfigDef], name: &str) -> Option<&'a ConfigDef> {
    table.iter().find(|def| def.name == name)
}

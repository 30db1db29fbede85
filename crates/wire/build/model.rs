//! What a schema says, and the questions the emitters ask about it.

/// An inclusive range of versions; open ranges end at `i16::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Versions {
    pub(crate) min: i16,
    pub(crate) max: i16,
}

impl Versions {
    pub(crate) fn and(self, other: Versions) -> Versions {
        Versions {
            min: self.min.max(other.min),
            max: self.max.min(other.max),
        }
    }

    pub(crate) fn is_empty(self) -> bool {
        self.min > self.max
    }

    pub(crate) fn covers(self, other: Versions) -> bool {
        self.min <= other.min && other.max <= self.max
    }

    pub(crate) fn contains(self, version: i16) -> bool {
        self.min <= version && version <= self.max
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Type {
    /// Kafka's name of a primitive.
    Primitive(String),
    /// A struct of the same message.
    Struct(String),
    /// An array.
    Array(Box<Type>),
}

#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) ty: Type,
    pub(crate) versions: Versions,
    pub(crate) nullable: Option<Versions>,
    pub(crate) tag: Option<(u32, Versions)>,
    pub(crate) default: Option<String>,
    pub(crate) ignorable: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Struct {
    pub(crate) name: String,
    /// Versions of the message in which the struct can occur.
    pub(crate) versions: Versions,
    pub(crate) fields: Vec<Field>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Request,
    Response,
    /// A record whose type number is the key (metadata log, coordinator topics).
    Record,
    Data,
}

#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) key: Option<i16>,
    pub(crate) versions: Versions,
    /// First flexible version, `i16::MAX` if none.
    pub(crate) flexible: i16,
    /// A second body under the key of another message; the key's tables describe the other one.
    pub(crate) is_dialect: bool,
    /// Only in a file that extends a message: fields (struct and name) that become ignorable.
    pub(crate) also_ignorable: Vec<(String, String)>,
    /// The message itself first, then its nested structs.
    pub(crate) structs: Vec<Struct>,
}

impl Message {
    pub(crate) fn find(&self, name: &str) -> &Struct {
        self.structs
            .iter()
            .find(|s| s.name == name)
            .unwrap_or_else(|| panic!("{}: no struct {name}", self.name))
    }

    /// Fewest bytes of a struct over the versions in which it occurs.
    pub(crate) fn min_size(&self, s: &Struct) -> usize {
        (s.versions.min..=s.versions.max)
            .map(|version| self.size_in(s, version))
            .min()
            .unwrap_or(0)
    }

    fn size_in(&self, s: &Struct, version: i16) -> usize {
        let present = s.fields.iter().filter(|f| f.is_plain_in(version));
        let fields: usize = present.map(|field| self.field_size(field, version)).sum();
        fields + usize::from(version >= self.flexible)
    }

    fn field_size(&self, field: &Field, version: i16) -> usize {
        let flexible = version >= self.flexible;
        match &field.ty {
            Type::Struct(_) if field.nullable.is_some() => 1,
            Type::Struct(name) => self.size_in(self.find(name), version),
            Type::Array(_) => {
                if flexible {
                    1
                } else {
                    4
                }
            }
            Type::Primitive(name) => match name.as_str() {
                "bool" | "int8" => 1,
                "int16" | "uint16" => 2,
                "int32" | "uint32" => 4,
                "int64" | "float64" => 8,
                "uuid" => 16,
                "string" => {
                    if flexible {
                        1
                    } else {
                        2
                    }
                }
                "bytes" | "records" => {
                    if flexible {
                        1
                    } else {
                        4
                    }
                }
                other => panic!("unknown type {other}"),
            },
        }
    }
}

impl Field {
    /// Whether the field stands in its place (not in the tagged section) in this version.
    fn is_plain_in(&self, version: i16) -> bool {
        self.versions.contains(version)
            && !self.tag.is_some_and(|(_, tagged)| tagged.contains(version))
    }

    /// The Rust name.
    pub(crate) fn ident(&self) -> String {
        let name = snake(&self.name);
        if ["type", "match", "box", "ref", "move", "where", "use", "in"].contains(&name.as_str()) {
            format!("{name}_")
        } else {
            name
        }
    }

    pub(crate) fn rust_type(&self) -> String {
        let inner = rust_type(&self.ty);
        if self.nullable.is_some() {
            format!("Option<{inner}>")
        } else {
            inner
        }
    }
}

fn rust_type(ty: &Type) -> String {
    match ty {
        Type::Struct(name) => name.clone(),
        Type::Array(of) => format!("Vec<{}>", rust_type(of)),
        Type::Primitive(name) => match name.as_str() {
            "bool" => "bool",
            "int8" => "i8",
            "int16" => "i16",
            "uint16" => "u16",
            "int32" => "i32",
            "uint32" => "u32",
            "int64" => "i64",
            "float64" => "f64",
            "uuid" => "Uuid",
            "string" => "Str",
            "bytes" => "Bytes",
            "records" => "Records",
            other => panic!("unknown type {other}"),
        }
        .to_owned(),
    }
}

/// `TopicId` → `topic_id`; a run of capitals is one word.
pub(crate) fn snake(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    let mut out = String::new();
    for (at, c) in chars.iter().enumerate() {
        let after_small = at > 0 && !chars[at - 1].is_uppercase();
        let before_small = at > 0 && chars.get(at + 1).is_some_and(|next| next.is_lowercase());
        if c.is_uppercase() && (after_small || before_small) {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}

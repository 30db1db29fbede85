//! Reader of Java properties text, with the line of every entry (the format `server.properties`
//! has: continuations, `\u` escapes, `=`, `:` or blanks as separators). It knows nothing of keys.

/// One entry, in the order of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Unescaped key.
    pub key: String,
    /// Unescaped value, trailing blanks kept.
    pub value: String,
    /// Line on which the entry begins, from 1.
    pub line: usize,
}

/// A line that is not properties text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    /// Line, from 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

/// Parses a whole file. Text that is not UTF-8 is read as Latin-1, which is what Kafka does with
/// every file.
pub fn parse(bytes: &[u8]) -> Result<Vec<Entry>, SyntaxError> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.trim_start_matches('\u{feff}').to_owned(),
        Err(_) => bytes.iter().map(|&b| char::from(b)).collect(),
    };
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut entries = Vec::new();
    let mut lines = text.split('\n').enumerate();
    while let Some((index, natural)) = lines.next() {
        let line = index + 1;
        let mut logical = natural.trim_start_matches(is_blank).to_owned();
        if logical.is_empty() || logical.starts_with(['#', '!']) {
            continue;
        }
        while ends_with_continuation(&logical) {
            logical.pop();
            match lines.next() {
                Some((_, next)) => logical.push_str(next.trim_start_matches(is_blank)),
                None => break,
            }
        }
        let (key, value) = split(&logical);
        let fail = |message| SyntaxError { line, message };
        entries.push(Entry {
            key: unescape(key).map_err(fail)?,
            value: unescape(value).map_err(fail)?,
            line,
        });
    }
    Ok(entries)
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\u{c}')
}

/// An odd number of backslashes at the end continues the line; an even number is escaped
/// backslashes.
fn ends_with_continuation(line: &str) -> bool {
    line.chars().rev().take_while(|&c| c == '\\').count() % 2 == 1
}

/// Cuts at the first unescaped separator.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    for (at, c) in line.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == '=' || c == ':' || is_blank(c) {
            let rest = line[at..].trim_start_matches(is_blank);
            let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest);
            return (&line[..at], rest.trim_start_matches(is_blank));
        }
    }
    (line, "")
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    // A pair of surrogates is written as two \u escapes.
    let mut high: Option<u16> = None;
    while let Some(c) = chars.next() {
        let c = if c != '\\' {
            c
        } else {
            match chars.next() {
                None => break,
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\u{c}',
                Some('u') => {
                    let digits: String = chars.by_ref().take(4).collect();
                    let unit = u16::from_str_radix(&digits, 16)
                        .ok()
                        .filter(|_| digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_hexdigit()))
                        .ok_or_else(|| format!("`\\u{digits}` is not an escape: four hexadecimal digits must follow `\\u`"))?;
                    match (high.take(), unit) {
                        (None, 0xD800..=0xDBFF) => {
                            high = Some(unit);
                            continue;
                        }
                        (first, unit) => {
                            let units = first.into_iter().chain([unit]);
                            out.extend(
                                char::decode_utf16(units)
                                    .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)),
                            );
                            continue;
                        }
                    }
                }
                Some(other) => other,
            }
        };
        out.push(c);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String, usize)> {
        parse(text.as_bytes())
            .unwrap()
            .into_iter()
            .map(|e| (e.key, e.value, e.line))
            .collect()
    }

    #[test]
    fn separators_continuations_and_escapes_follow_java() {
        let text = "# comment\n\n! other\na=1\n b : 2\nc 3\nd\ne = x\\\n    y\\\\\nf\\=g=h\\u0041\\tz\r\ni=\\ \\ j\n";
        let got = pairs(text);
        let want = [
            ("a", "1", 4),
            ("b", "2", 5),
            ("c", "3", 6),
            ("d", "", 7),
            ("e", "xy\\", 8),
            ("f=g", "hA\tz", 10),
            ("i", "  j", 11),
        ];
        assert_eq!(got.len(), want.len());
        for (got, want) in got.iter().zip(want) {
            assert_eq!((got.0.as_str(), got.1.as_str(), got.2), want);
        }
    }

    #[test]
    fn a_comment_is_never_continued() {
        assert_eq!(pairs("# a\\\nb=1"), vec![("b".into(), "1".into(), 2)]);
    }

    #[test]
    fn a_bad_unicode_escape_names_its_line() {
        let error = parse(b"a=1\nb=\\u12g4").unwrap_err();
        assert_eq!(error.line, 2);
        assert!(error.message.contains("four hexadecimal digits"));
    }

    #[test]
    fn surrogate_pairs_become_one_character() {
        assert_eq!(pairs("a=\\ud83d\\ude00")[0].1, "\u{1F600}");
    }

    #[test]
    fn latin_1_text_is_read() {
        assert_eq!(parse(b"a=\xe4").unwrap()[0].value, "\u{e4}");
    }
}

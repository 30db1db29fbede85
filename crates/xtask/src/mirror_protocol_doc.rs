//! The parts of docs/mirror-protocol.md that are made from code: the fields of each message, from
//! the schemas of `crates/wire/schema/tarn`. Golden bytes are compared in `tidy`.

use std::fs;

use anyhow::{Context as _, Result};

/// Where the page is.
pub(crate) const PAGE: &str = "docs/mirror-protocol.md";
/// Where the schemas are.
pub(crate) const SCHEMAS: &str = "crates/wire/schema/tarn/";

/// What stands in front of the block of a message.
const MARK: &str = "<!-- message ";

/// Writes the page.
pub(crate) fn run() -> Result<()> {
    let root = super::repository();
    let page = fs::read_to_string(root.join(PAGE))?;
    let schema = |name: &str| fs::read_to_string(root.join(format!("{SCHEMAS}{name}.msg"))).ok();
    let made = render(&page, &schema)?;
    fs::write(root.join(PAGE), made)?;
    Ok(())
}

/// The page with the block behind each mark made anew. `schema` gives the text of a message's
/// schema.
pub(crate) fn render(page: &str, schema: &dyn Fn(&str) -> Option<String>) -> Result<String> {
    let mut made = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        made.push_str(line);
        made.push('\n');
        let Some(name) = line
            .strip_prefix(MARK)
            .and_then(|rest| rest.strip_suffix(" -->"))
        else {
            continue;
        };
        let text = schema(name).with_context(|| format!("there is no schema of {name}"))?;
        // The old block, from fence to fence.
        lines.next();
        lines.by_ref().find(|line| *line == "```");
        made.push_str(&format!("```\n{}```\n", block(name, &text)));
    }
    Ok(made)
}

/// The fields as the page shows them: a message's name, then one line a field.
fn block(name: &str, schema: &str) -> String {
    let mut block = format!("{name}\n");
    let fields = schema
        .lines()
        .skip_while(|line| line.trim_end() != "fields")
        .skip(1);
    for line in fields.filter(|line| !line.trim_start().starts_with('#')) {
        // A message with one version says "0+" in each line.
        let line = line.replace(" 0+", "").replace("null=0+", "null");
        block.push_str(line.trim_end());
        block.push('\n');
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_made_anew_from_its_schema_and_the_rest_stays() {
        let page = "a\n<!-- message M -->\n```\nold\n```\nb\n";
        let schema = "message M request 1\nversions 0\nfields\n  Name string 0+ key\n  Text string 0+ null=0+ tag=1\n";
        let made = render(page, &|name| (name == "M").then(|| schema.to_owned())).unwrap();
        assert_eq!(
            made,
            "a\n<!-- message M -->\n```\nM\n  Name string key\n  Text string null tag=1\n```\nb\n"
        );
        assert!(render(page, &|_| None).is_err());
    }
}

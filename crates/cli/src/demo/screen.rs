//! What the demo shows: the describe table in place on a terminal, one block after the other
//! elsewhere, and the lines to try next.

use std::io::{IsTerminal, Write};

use crate::mirrors::{PartitionRow, Personality, describe_table};

/// Clear everything and go home.
const CLEAR: &str = "\x1b[2J\x1b[H";
/// Where there is no terminal, only every so many draws are printed.
const PLAIN_EVERY: u32 = 10;

/// The output of the live view.
pub(super) struct Screen {
    terminal: bool,
    draws: u32,
}

impl Screen {
    pub(super) fn new() -> Self {
        Self {
            terminal: std::io::stdout().is_terminal(),
            draws: 0,
        }
    }

    /// Shows the state of the mirror; `produced` is what the sample producer wrote so far.
    pub(super) fn draw(&mut self, rows: &[PartitionRow], produced: Option<u64>, next: &str) {
        let first = self.draws == 0;
        self.draws = self.draws.wrapping_add(1);
        if !self.terminal && !first && !self.draws.is_multiple_of(PLAIN_EVERY) {
            return;
        }
        let mut text = String::from(if self.terminal { CLEAR } else { "\n" });
        text.push_str(&describe_table(Personality::Mirrors, rows));
        if let Some(produced) = produced {
            text.push_str(&format!("\n{produced} records written to the source.\n"));
        }
        if self.terminal || first {
            text.push_str("\nCtrl-C ends it. Try in another terminal:\n");
            text.push_str(next);
        }
        let mut out = std::io::stdout().lock();
        // A closed pipe ends the demo at the next signal; there is nobody to tell.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

/// The commands to try next against the destination at `bootstrap`.
pub(super) fn next_steps(bootstrap: &str, topic: &str) -> String {
    let tool = format!("bin/kafka-mirrors.sh --bootstrap-server {bootstrap}");
    format!(
        "  consume     kcat -C -e -b {bootstrap} -t {topic}\n\
         \x20             kafka-console-consumer.sh --bootstrap-server {bootstrap} --topic {topic} --from-beginning\n\
         \x20 describe    {tool} --describe --mirror demo\n\
         \x20 pause       {tool} --pause --mirror demo --topic {topic}\n\
         \x20 fail over   {tool} --remove --mirror demo --all-topics --wait\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_steps_name_the_destination_and_a_topic() {
        let text = next_steps("127.0.0.1:9", "orders");
        assert_eq!(text.lines().count(), 5);
        assert!(
            text.lines()
                .all(|l| l.starts_with("  ") && l.contains("127.0.0.1:9"))
        );
        assert!(text.contains("-t orders") && text.contains("--remove --mirror demo --all-topics"));
    }
}

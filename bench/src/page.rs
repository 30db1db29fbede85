//! Builds docs/performance.md and its pictures from the records and from hand-written text, which
//! lies in docs/performance/notes: `intro.md` opens the page, `method.md` says how figures are
//! taken, `running.md` how to run it, a file named like a row gives the bounds and the evidence of
//! a row, `gates.md` the regression gates.
//!
//! Figures come from the records only, verdicts from the table of goals.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::plot;
use crate::rows::{self, Row, Verdict};
use crate::scenario::Side;
use crate::settings;
use crate::stats::{figure, moment};
use crate::store::{Record, Round, Store};
use crate::table::{self, Line};

/// The row that describes the machine, which has no goals.
const MACHINE_ROW: &str = "M1";

/// Every file of the page by its path below `docs`.
pub type Files = BTreeMap<PathBuf, String>;

/// Makes the page from what lies in `docs/performance`.
///
/// # Errors
/// A record or a text cannot be read.
pub fn build(docs: &Path) -> Result<Files> {
    let folder = docs.join("performance");
    let mut records: Vec<Record> = Store::at(&folder).load_all()?;
    for record in &mut records {
        // Whoever copies a smoke run here publishes nothing.
        record.rounds.retain(|round| round.scale == 1.0);
    }
    let page = Page { folder, records };
    let mut files = Files::new();
    for row in rows::all().iter().map(|row| row.id).chain([MACHINE_ROW]) {
        if let Some(svg) = page.record(row).and_then(|record| plot::row(&record, row)) {
            files.insert(PathBuf::from(format!("performance/{row}.svg")), svg);
        }
    }
    let text = page.text(&files)?;
    files.insert(PathBuf::from("performance.md"), text);
    Ok(files)
}

/// Writes the page below `docs`.
///
/// # Errors
/// As [`build`], and when the disk does not take it.
pub fn write(docs: &Path) -> Result<()> {
    for (path, text) in build(docs)? {
        let file = docs.join(path);
        fs::write(&file, text)
            .with_context(|| format!("{} could not be written", file.display()))?;
    }
    Ok(())
}

struct Page {
    folder: PathBuf,
    records: Vec<Record>,
}

impl Page {
    /// Everything measured for a row, from one scenario or from several that fill different cells
    /// of it.
    fn record(&self, row: &str) -> Option<Record> {
        let mut with_figures = self
            .records
            .iter()
            .filter(|record| !record.cells(row).is_empty());
        let mut merged = with_figures.next()?.clone();
        for further in with_figures {
            merged.scenario = format!("{}, {}", merged.scenario, further.scenario);
            merged.rounds.extend(further.rounds.iter().cloned());
        }
        Some(merged)
    }

    fn note(&self, name: &str) -> Result<Option<String>> {
        let file = self.folder.join("notes").join(format!("{name}.md"));
        if !file.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        Ok(Some(text.trim().to_owned()))
    }

    fn text(&self, files: &Files) -> Result<String> {
        let mut text = String::from(
            "# Performance\n\n<!-- Made by bin/bench.sh page from docs/performance. Do not edit. -->\n\n",
        );
        self.push_note(&mut text, "intro")?;
        let all = rows::all();
        let (broker, mirror): (Vec<&Row>, Vec<&Row>) =
            all.iter().partition(|row| row.id.starts_with('P'));
        text.push_str("## Outcome\n\n");
        self.counts(&mut text, &all);
        text.push_str("### Broker: Tarn beside Kafka\n\n");
        self.goals(&mut text, &broker);
        text.push_str("### Mirror: Tarn beside MirrorMaker 2 and its destination Kafka\n\n");
        self.goals(&mut text, &mirror);
        self.push_note(&mut text, "method")?;
        text.push_str("## The machine\n\n");
        self.machine(&mut text, files)?;
        text.push_str("## Row by row\n\n");
        for row in &all {
            self.row(&mut text, row, files)?;
        }
        self.profiles(&mut text)?;
        if let Some(trial) = settings::section(&self.folder)? {
            writeln!(text, "## Settings of the rivals\n\n{trial}\n")?;
        }
        if let Some(gates) = self.note("gates")? {
            writeln!(text, "## Regression gates\n\n{gates}\n")?;
        }
        text.push_str("## How each scenario works, and its rounds\n\n");
        self.rounds(&mut text);
        self.push_note(&mut text, "running")?;
        Ok(text.trim_end().to_owned() + "\n")
    }

    fn push_note(&self, text: &mut String, name: &str) -> Result<()> {
        if let Some(note) = self.note(name)? {
            text.push_str(&note);
            text.push_str("\n\n");
        }
        Ok(())
    }

    fn verdict(&self, row: &Row) -> Verdict {
        let lines = table::lines(self.record(row.id).as_ref(), row.id);
        let verdicts: Vec<Verdict> = lines.iter().filter_map(|line| line.verdict).collect();
        rows::of_row(&verdicts)
    }

    fn counts(&self, text: &mut String, all: &[Row]) {
        let mut names: BTreeMap<Verdict, Vec<&str>> = BTreeMap::new();
        for row in all {
            names.entry(self.verdict(row)).or_default().push(row.id);
        }
        for (verdict, what) in [
            (Verdict::Moonshot, "the moonshot in every cell"),
            (Verdict::Goal, "the goal in every cell"),
            (Verdict::Missed, "missed in at least one cell"),
            (Verdict::NotMeasured, "not measured, or not wholly"),
        ] {
            if let Some(ids) = names.get(&verdict) {
                writeln!(
                    text,
                    "* {} of {} rows: {what} ({})",
                    ids.len(),
                    all.len(),
                    ids.join(", ")
                )
                .ok();
            }
        }
        text.push('\n');
    }

    fn goals(&self, text: &mut String, rows: &[&Row]) {
        text.push_str(
            "| row | measure | Tarn | rival | ratio | goal | moonshot | verdict | rounds |\n|---|---|---|---|---|---|---|---|---|\n",
        );
        for row in rows {
            let record = self.record(row.id);
            let mark = record.as_ref().map_or("", busy_mark);
            let mut head = format!("[{}](#{})", row.id, row.id.to_lowercase());
            for (line, cell) in table::lines(record.as_ref(), row.id).iter().zip(&row.cells) {
                let what = if head.is_empty() {
                    shape(line)
                } else {
                    format!("{}: {}", row.title, shape(line))
                };
                writeln!(
                    text,
                    "| {head} | {what} | {} | {} | {} | {} | {} | {}{mark} | {} |",
                    table::spread_text(line.own),
                    table::spread_text(line.rival),
                    ratio_text(line),
                    table::bound_text(&cell.goal, cell.better, cell.measure),
                    table::bound_text(&cell.moonshot, cell.better, cell.measure),
                    line.verdict.map_or("", Verdict::word),
                    rounds_text(line),
                )
                .ok();
                head.clear();
            }
        }
        text.push('\n');
    }

    fn machine(&self, text: &mut String, files: &Files) -> Result<()> {
        let mut machines: Vec<(&crate::machine::Machine, Vec<&str>)> = Vec::new();
        for record in &self.records {
            match machines
                .iter_mut()
                .find(|(machine, _)| *machine == &record.machine)
            {
                Some((_, names)) => names.push(&record.scenario),
                None => machines.push((&record.machine, vec![&record.scenario])),
            }
        }
        for (machine, names) in &machines {
            if machines.len() > 1 {
                writeln!(text, "{}:\n", names.join(", "))?;
            }
            writeln!(
                text,
                "* {}, {} processors, {:.0} GiB of memory, {}, {} for the data, {} KiB read ahead, {} as the default congestion control, {} open files a process\n\
                 * {}; Kafka and MirrorMaker {}\n",
                machine.processor,
                machine.cores,
                machine.memory_bytes as f64 / (1u64 << 30) as f64,
                machine.kernel,
                machine.file_system,
                machine.read_ahead_kib,
                machine.congestion_control,
                machine.descriptors,
                machine.java,
                machine.kafka,
            )?;
        }
        self.details(text, MACHINE_ROW, files)
    }

    fn row(&self, text: &mut String, row: &Row, files: &Files) -> Result<()> {
        writeln!(text, "### {}\n", row.id)?;
        writeln!(
            text,
            "{}. Goal: {}; moonshot: {}. Verdict: {}.\n",
            capital(row.title),
            row.wanted.0,
            row.wanted.1,
            self.verdict(row).word()
        )?;
        self.details(text, row.id, files)
    }

    /// Picture, every figure, and the note of a row.
    fn details(&self, text: &mut String, id: &str, files: &Files) -> Result<()> {
        if let Some(record) = self.record(id) {
            if files.contains_key(Path::new(&format!("performance/{id}.svg"))) {
                writeln!(text, "![{id}](performance/{id}.svg)\n")?;
            }
            figures(text, &record, id);
            let links: Vec<String> = record
                .scenario
                .split(", ")
                .map(|name| format!("[{name}](#scenario-{name})"))
                .collect();
            writeln!(text, "How: {}.\n", links.join(", "))?;
        }
        if let Some(note) = self.note(id)? {
            writeln!(text, "{note}\n")?;
        }
        Ok(())
    }

    fn profiles(&self, text: &mut String) -> Result<()> {
        let mut files: Vec<PathBuf> = fs::read_dir(self.folder.join("profiles"))
            .into_iter()
            .flatten()
            .filter_map(|entry| {
                Some(entry.ok()?.path()).filter(|p| p.extension().is_some_and(|e| e == "txt"))
            })
            .collect();
        files.sort();
        if files.is_empty() {
            return Ok(());
        }
        text.push_str(
            "## Where the processor time goes\n\nThe Tarn process, sampled by `perf` on its processor clock during the measured part of a \
             round that gave no figures.\n\n",
        );
        for file in files {
            let profile = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            let (title, rest) = profile.split_once('\n').unwrap_or((&profile, ""));
            writeln!(
                text,
                "### Profile: {title}\n\n```text\n{}\n```\n",
                rest.trim()
            )?;
        }
        Ok(())
    }

    fn rounds(&self, text: &mut String) {
        text.push_str("Others: processor time of processes that are not the harness's, before and during the round, in percent of one core.\n\n");
        for record in &self.records {
            writeln!(text, "### Scenario {}\n", record.scenario).ok();
            if !record.about.is_empty() {
                writeln!(text, "{}\n", record.about).ok();
            }
            for remark in &record.remarks {
                writeln!(text, "* {remark}").ok();
            }
            if !record.remarks.is_empty() {
                text.push('\n');
            }
            text.push_str("| round | side | began (UTC) | took | commit | load | others | remarks |\n|---|---|---|---|---|---|---|---|\n");
            for round in &record.rounds {
                writeln!(
                    text,
                    "| {} | {} | {} | {} s | {} | {:.2} | {:.1} / {:.1} | {} |",
                    round.round,
                    round.side.title(),
                    moment(round.started_unix_s),
                    round.ended_unix_s.saturating_sub(round.started_unix_s),
                    round.commit,
                    round.load_average,
                    round.others_before.percent_of_a_core,
                    round.others_during.percent_of_a_core,
                    remarks(round),
                )
                .ok();
            }
            text.push('\n');
        }
    }
}

/// A mark for verdicts on figures of a busy machine.
fn busy_mark(record: &Record) -> &'static str {
    if record.counted().any(Round::disturbed) {
        " (busy machine)"
    } else {
        ""
    }
}

fn shape(line: &Line) -> String {
    match line.cell.as_str() {
        "" => line.measure.clone(),
        cell => format!("{cell}, {}", line.measure),
    }
}

/// How many rounds the figures are of, Tarn's and the rival's.
fn rounds_text(line: &Line) -> String {
    let count = |spread: Option<crate::stats::Spread>| spread.map_or(0, |spread| spread.count);
    match (count(line.own), count(line.rival)) {
        (0, 0) => "–".to_owned(),
        (own, 0) => own.to_string(),
        (own, rival) => format!("{own} + {rival}"),
    }
}

fn ratio_text(line: &Line) -> String {
    line.ratio
        .map_or_else(|| "–".to_owned(), |ratio| format!("{}×", figure(ratio)))
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().collect::<String>() + letters.as_str()
    })
}

fn remarks(round: &Round) -> String {
    let mut all = round.remarks.clone();
    if round.replaced {
        all.push("disturbed, run once more, not counted".to_owned());
    } else if round.forced {
        all.push("run on a busy machine because --force said so".to_owned());
    } else if round.disturbed() {
        all.push("disturbed twice, counted".to_owned());
    }
    if round.disturbed() {
        let names =
            [&round.others_before, &round.others_during].map(|others| others.names.join(", "));
        all.push(format!(
            "others: {}",
            names
                .iter()
                .find(|n| !n.is_empty())
                .map_or("", String::as_str)
        ));
    }
    all.join("; ").replace('|', "/")
}

/// Every figure of a row: the rounds in their order.
fn figures(text: &mut String, record: &Record, id: &str) {
    text.push_str("| shape | measure | side | median | rounds |\n|---|---|---|---|---|\n");
    for line in table::lines(Some(record), id) {
        for side in record.sides() {
            let values = record.values(side, id, &line.cell, &line.measure);
            if let Some(spread) = crate::stats::Spread::of(&values) {
                let list: Vec<String> = values.iter().map(|v| figure(*v)).collect();
                writeln!(
                    text,
                    "| {} | {} | {} | {} | {} |",
                    line.cell,
                    line.measure,
                    Side::title(side),
                    figure(spread.median),
                    list.join(", ")
                )
                .ok();
            }
        }
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::busy::Others;
    use crate::rows::measure;
    use crate::store::tests::round;

    fn repository_docs() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
    }

    #[test]
    fn the_committed_page_is_what_the_committed_figures_make() {
        let docs = repository_docs();
        for (path, text) in build(&docs).unwrap() {
            let committed = fs::read_to_string(docs.join(&path)).unwrap_or_default();
            assert!(
                committed == text,
                "docs/{} is stale: run bin/bench.sh page and commit what it writes",
                path.display()
            );
        }
    }

    fn docs_with(record: &Record) -> tempfile::TempDir {
        let docs = tempfile::tempdir().unwrap();
        Store::at(&docs.path().join("performance"))
            .save(record)
            .unwrap();
        docs
    }

    fn record() -> Record {
        let of =
            |number, side, value| round(number, side, "P1", measure::PROCESSOR_S_PER_GB, value);
        Record {
            scenario: "broker".to_owned(),
            rows: vec!["P1".to_owned()],
            rounds: vec![of(1, Side::Tarn, 1.0), of(1, Side::Kafka, 4.0)],
            ..Record::default()
        }
    }

    #[test]
    fn a_losing_cell_and_what_was_not_measured_stay_on_the_page() {
        let docs = docs_with(&record());
        let page = &build(docs.path()).unwrap()[Path::new("performance.md")];
        let p1 = page
            .lines()
            .find(|line| line.starts_with("| [P1]"))
            .unwrap();
        assert!(
            p1.contains("| 4.00× |") && p1.ends_with("**missed** | 1 + 1 |"),
            "{p1}"
        );
        assert!(page.contains("23 of 24 rows: not measured"));
        assert!(page.contains("![P1](performance/P1.svg)"));
    }

    #[test]
    fn a_busy_machine_marks_the_verdict_and_names_the_process() {
        let mut record = record();
        record.rounds[0].forced = true;
        record.rounds[0].others_during = Others {
            percent_of_a_core: 50.0,
            names: vec!["rustc 7: 50.0 %".to_owned()],
        };
        let docs = docs_with(&record);
        let page = &build(docs.path()).unwrap()[Path::new("performance.md")];
        assert!(page.contains("**missed** (busy machine)"));
        assert!(page.contains("because --force said so; others: rustc 7: 50.0 %"));
    }

    #[test]
    fn notes_and_profiles_are_included() {
        let docs = docs_with(&record());
        let folder = docs.path().join("performance");
        for (name, text) in [
            ("notes/P1.md", "Bound by the disk."),
            ("profiles/produce.txt", "produce: 9 samples\n\nby kind\n"),
        ] {
            let file = folder.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let page = &build(docs.path()).unwrap()[Path::new("performance.md")];
        assert!(page.contains("\nBound by the disk.\n"));
        assert!(page.contains("### Profile: produce: 9 samples\n\n```text\nby kind\n```"));
    }
}

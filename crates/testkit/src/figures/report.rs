//! The figures as a table for a terminal, as JSON, and as Markdown.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::machine::Machine;
use super::measure::{Limit, Row};
use super::options::{Form, Options};
use super::series::Series;
use crate::engine::plane::Plane;
use crate::traffic::Hook;

/// What was measured, where and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// Sidestep's name and version.
    pub version: String,
    /// Length of a window, in seconds.
    pub window: f64,
    /// Windows per figure.
    pub rounds: usize,
    /// Behavior by behavior.
    pub rows: Vec<Row>,
    /// What no data plane can exceed.
    pub limits: Vec<Limit>,
}

impl Report {
    /// Empty, for these options.
    pub fn new(machine: Machine, version: String, options: &Options) -> Self {
        Self {
            machine,
            version,
            window: options.window.as_secs_f64(),
            rounds: options.rounds,
            rows: Vec::new(),
            limits: Vec::new(),
        }
    }

    /// In the form that is asked for, with a line end.
    pub fn print(&self, form: Form) -> String {
        match form {
            Form::Text => self.text(),
            Form::Json => format!("{:#}\n", self.json()),
            Form::Markdown => self.markdown(),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let title = Plane::ALL.map(Plane::name);
        // The text of a String never fails; so below.
        let _ = writeln!(
            text,
            "{:28}{:<20}{:<26}{}",
            "", title[0], title[1], title[2]
        );
        let plane = format!("{:>6} {:>6} {:>5}  ", "Mpps", "ns", "sink");
        let ratio = format!("{:>6} {:>6} {:>5}", "Mpps", "ns", "ratio");
        let _ = writeln!(
            text,
            "{:26}{plane}{} {:>5}  {ratio}",
            "behavior",
            plane.trim_end(),
            "ratio"
        );
        for Row { behavior, planes } in &self.rows {
            let [linux, tc, xdp] = planes;
            let rate = |series: &Series| {
                let (mpps, ns) = (mpps(series), series.nanoseconds());
                format!("{mpps:>6.2}{}{ns:>6.0}", mark(series))
            };
            let sink = |series: &Series| format!("{:>5}", hook(series.hook));
            let ratio = |series: &Series| format!("{:>5.2}", series.median() / linux.median());
            let _ = writeln!(
                text,
                "{:26}{} {}  {} {} {}  {} {}",
                behavior.name,
                rate(linux),
                sink(linux),
                rate(tc),
                sink(tc),
                ratio(tc),
                rate(xdp),
                ratio(xdp),
            );
        }
        for Limit { name, series } in &self.limits {
            let _ = writeln!(
                text,
                "{name:62} {:>6.2}{}{:>6.0}",
                mpps(series),
                mark(series),
                series.nanoseconds()
            );
        }
        text.push('\n');
        for line in self.conditions() {
            let _ = writeln!(text, "{line}");
        }
        text
    }

    fn markdown(&self) -> String {
        let mut text = String::new();
        text.push_str(
            "| Mpps (ns per packet) | Linux | Sidestep TC | ratio | Sidestep XDP | ratio |\n",
        );
        text.push_str("|---|---:|---:|---:|---:|---:|\n");
        let figure = |series: &Series| {
            let ns = series.nanoseconds();
            format!("{:.2}{} ({ns:.0})", mpps(series), mark(series).trim_end())
        };
        for Row { behavior, planes } in &self.rows {
            let [linux, tc, xdp] = planes;
            let ratio = |series: &Series| series.median() / linux.median();
            let _ = writeln!(
                text,
                "| {} | {} | {} | {:.2} | **{}** | **{:.2}** |",
                behavior.name,
                figure(linux),
                figure(tc),
                ratio(tc),
                figure(xdp),
                ratio(xdp),
            );
        }
        for Limit { name, series } in &self.limits {
            let _ = writeln!(text, "| *{name}* | | | | {} | |", figure(series));
        }
        text.push('\n');
        for line in self.conditions() {
            let _ = writeln!(text, "{line}");
        }
        text
    }

    fn json(&self) -> Value {
        let series = |series: &Series| {
            json!({
                "mpps": mpps(series),
                "nanoseconds_per_packet": series.nanoseconds(),
                "spread": series.spread(),
                "lost": series.lost,
                "sink": hook(series.hook).to_lowercase(),
                "packets_per_second": series.rates,
            })
        };
        let rows = self.rows.iter().map(|Row { behavior, planes }| {
            let [linux, tc, xdp] = planes;
            json!({
                "behavior": behavior.name,
                "routes": behavior.routes,
                "bytes_in": behavior.sent.len(),
                "bytes_out": behavior.from_linux.len(),
                "linux": series(linux),
                "sidestep_tc": series(tc),
                "sidestep_xdp": series(xdp),
                "ratio_tc": tc.median() / linux.median(),
                "ratio_xdp": xdp.median() / linux.median(),
            })
        });
        let limits = self
            .limits
            .iter()
            .map(|limit| json!({"name": limit.name, "xdp": series(&limit.series)}));
        json!({
            "format": 1,
            "sidestep": self.version,
            "kernel": self.machine.kernel,
            "cpu_model": self.machine.model,
            "cpus": self.machine.cpus,
            "cpu": self.machine.cpu,
            "load_average": self.machine.load,
            "warning": self.machine.warning(),
            "window_seconds": self.window,
            "rounds": self.rounds,
            "behaviors": rows.collect::<Vec<_>>(),
            "limits": limits.collect::<Vec<_>>(),
        })
    }

    /// What the figures mean, in lines of at most 100 columns.
    fn conditions(&self) -> Vec<String> {
        let Machine {
            kernel,
            model,
            cpu,
            load,
            ..
        } = &self.machine;
        let load = load.map_or_else(|| "unknown".to_owned(), |load| format!("{load:.2}"));
        let mut lines = vec![
            format!("{}, Linux {kernel}, {model}; load average before the start: {load}.", self.version),
            format!("CPU {cpu} runs generator, router and sink in one loop: a figure is the whole loop."),
            format!("Median of {} windows of {} s, the data planes in turn; ratio: to Linux.", self.rounds, self.window),
            "veth, all offloads and GRO off, static neighbors, one flow; 78-byte frames, the same inside SRv6.".into(),
            "Linux and Sidestep TC are counted at the cheaper of two hooks of the sink (XDP or TC), XDP in XDP.".into(),
            "Each packet was compared byte for byte first; by its counters Sidestep forwarded all of them itself.".into(),
        ];
        let of_rows = self.rows.iter().flat_map(|row| &row.planes);
        let series: Vec<&Series> = of_rows
            .chain(self.limits.iter().map(|limit| &limit.series))
            .collect();
        if series.iter().any(|series| mark(series) == "~") {
            let percent = UNSTEADY * 100.0;
            lines.push(format!(
                "~ The windows differ by more than {percent:.0} % of the median."
            ));
        }
        if series.iter().any(|series| mark(series) == "!") {
            let percent = LOSSY * 100.0;
            lines.push(format!("! More than {percent} % of what Sidestep forwarded did not arrive: a queue was full."));
        }
        if let Some(warning) = self.machine.warning() {
            lines.push(format!("NOT QUIET: {warning}."));
        }
        lines
    }
}

fn mpps(series: &Series) -> f64 {
    series.median() / 1e6
}

/// `~` behind a figure that did not stand still, `!` behind one with losses.
fn mark(series: &Series) -> &'static str {
    if series.lost > LOSSY {
        "!"
    } else if series.spread() > UNSTEADY {
        "~"
    } else {
        " "
    }
}

fn hook(hook: Hook) -> &'static str {
    match hook {
        Hook::Xdp => "XDP",
        Hook::Tc => "TC",
    }
}

/// A spread above this is marked.
const UNSTEADY: f64 = 0.1;
/// A loss above this is marked.
const LOSSY: f64 = 0.001;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::rows;

    fn report() -> Report {
        let series = |rates: &[f64]| Series {
            rates: rates.to_vec(),
            ..Series::new(Hook::Tc)
        };
        let machine = Machine {
            kernel: "6.18.0".into(),
            model: "CPU".into(),
            cpus: 2,
            cpu: 1,
            load: Some(0.75),
        };
        let options = Options::parse([]).expect("no options");
        let mut report = Report::new(machine, "sidestep 0.1.0".into(), &options);
        let mut behaviors = rows::all().into_iter();
        report.rows.push(Row {
            behavior: behaviors
                .find(|behavior| behavior.name == "H.Encaps, 1 segment")
                .expect("it is measured"),
            planes: [
                series(&[1e6]),
                series(&[1.5e6]),
                series(&[2.8e6, 3e6, 3.2e6]),
            ],
        });
        report.limits.push(Limit {
            name: "nothing between",
            series: series(&[8e6]),
        });
        report
    }

    #[test]
    fn the_table_has_ratios_and_marks_what_did_not_stand_still() {
        let text = report().print(Form::Text);
        let row = text
            .lines()
            .find(|line| line.starts_with("H.Encaps"))
            .expect("a row");
        let words: Vec<&str> = row.split_whitespace().skip(3).collect();
        assert_eq!(
            words,
            [
                "1.00", "1000", "TC", "1.50", "667", "TC", "1.50", "3.00~", "333", "3.00"
            ],
            "{text}"
        );
        assert!(text.contains("~ The windows") && text.contains("NOT QUIET: load average 0.75"));
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    }

    #[test]
    fn json_has_every_round_and_markdown_one_row_per_behavior() {
        let report = report();
        let value: Value = serde_json::from_str(&report.print(Form::Json)).expect("JSON");
        let row = &value["behaviors"][0];
        assert_eq!(
            row["sidestep_xdp"]["packets_per_second"]
                .as_array()
                .map(Vec::len),
            Some(3)
        );
        assert_eq!(row["ratio_xdp"], 3.0);
        assert_eq!(
            (&row["bytes_in"], &row["bytes_out"]),
            (&json!(78), &json!(142))
        );
        let markdown = report.print(Form::Markdown);
        let expected = "| H.Encaps, 1 segment | 1.00 (1000) | 1.50 (667) | 1.50 | **3.00~ (333)** | **3.00** |";
        assert!(markdown.lines().any(|line| line == expected), "{markdown}");
    }
}

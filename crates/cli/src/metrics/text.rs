//! The text formats of metrics.

use std::fmt::Write as _;

/// Text format of a scrape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text format 0.0.4.
    Text,
    /// `OpenMetrics` 1.0.
    OpenMetrics,
}

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, until the data plane is removed.
    Counter,
    /// A current value.
    Gauge,
}

/// Labels of a sample.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// Metrics as text.
#[derive(Debug)]
pub struct Text {
    format: Format,
    text: String,
}

impl Text {
    pub fn new(format: Format) -> Self {
        Self {
            format,
            text: String::new(),
        }
    }

    /// Begins a metric. The name of a counter ends in `_total`.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        // In OpenMetrics the suffix is part of the sample, not of the metric.
        let family = match self.format {
            Format::Text => name,
            Format::OpenMetrics => name.trim_end_matches("_total"),
        };
        let _ = writeln!(self.text, "# HELP {family} {help}\n# TYPE {family} {kind}");
    }

    pub fn sample(&mut self, name: &str, labels: Labels<'_>, value: u64) {
        self.text.push_str(name);
        for (number, (label, value)) in labels.iter().enumerate() {
            self.text.push(if number == 0 { '{' } else { ',' });
            self.text.push_str(label);
            self.text.push_str("=\"");
            self.push_escaped(value);
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    fn push_escaped(&mut self, value: &str) {
        for letter in value.chars() {
            match letter {
                '\\' => self.text.push_str("\\\\"),
                '"' => self.text.push_str("\\\""),
                '\n' => self.text.push_str("\\n"),
                letter => self.text.push(letter),
            }
        }
    }

    pub fn end(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_its_labels_in_quotes() {
        let shown = |format| {
            let mut text = Text::new(format);
            text.family("a_total", Kind::Counter, "Packets.");
            text.sample("a_total", &[("port", "e\"0\\"), ("table", "254")], 7);
            text.family("b", Kind::Gauge, "State.");
            text.sample("b", &[], 1);
            text.end()
        };
        let expected = "# HELP a_total Packets.\n# TYPE a_total counter\n\
                        a_total{port=\"e\\\"0\\\\\",table=\"254\"} 7\n\
                        # HELP b State.\n# TYPE b gauge\nb 1\n";
        assert_eq!(shown(Format::Text), expected);
        let expected = "# HELP a Packets.\n# TYPE a counter\n\
                        a_total{port=\"e\\\"0\\\\\",table=\"254\"} 7\n\
                        # HELP b State.\n# TYPE b gauge\nb 1\n# EOF\n";
        assert_eq!(shown(Format::OpenMetrics), expected);
    }
}

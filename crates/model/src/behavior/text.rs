//! Help, grammar, completion words and the documentation table, generated from the descriptor
//! tables.

use std::fmt::Write;

use super::SEGMENTS_MAX;
use super::attribute::{Attribute, Flavor};
use super::check::join;
use super::endpoint::{BEHAVIORS, Descriptor};
use super::headend::{HEADENDS, Headend};
use super::proxy::words_of;
use crate::route::Family;

/// Returns the text of `sidestep help behaviors`, one line per behavior.
pub fn help() -> String {
    let mut text = String::from("Endpoint behaviors: encap seg6local action ACTION …\n");
    for row in BEHAVIORS {
        let (usage, summary) = (usage(row), row.summary);
        let _ = match usage.len() {
            0..48 => writeln!(text, "  {usage:<48}{summary}"),
            // A long usage has its summary on the next line, in the same column.
            _ => writeln!(text, "  {usage}\n{:50}{summary}", ""),
        };
    }
    text.push_str("\nHeadend behaviors: encap seg6 mode MODE segs SEGMENTS …\n");
    for row in HEADENDS {
        let _ = writeln!(text, "  {:<13}{:<35}{}", row.word, row.name, row.summary);
    }
    text.push_str("\nFlavors: flavors FLAVOR[,FLAVOR]…\n");
    for flavor in Flavor::ALL {
        let _ = writeln!(text, "  {:<12}{}", flavor.word(), flavor.summary());
    }
    text
}

/// Returns the behavior with its attributes, optional ones in brackets.
fn usage(row: &Descriptor) -> String {
    let mut words = vec![row.name.to_owned()];
    words.extend(
        row.required
            .iter()
            .map(|attribute| attribute.form().to_owned()),
    );
    if !row.one_of.is_empty() {
        let choice = join(row.one_of.iter().map(|attribute| attribute.form()), " | ");
        words.push(format!("{{ {choice} }}"));
    }
    words.extend(
        row.optional
            .iter()
            .map(|attribute| format!("[ {} ]", attribute.form())),
    );
    if !row.flavors.is_empty() {
        words.push(format!("[ {} ]", Attribute::Flavors.form()));
    }
    words.join(" ")
}

fn headend_attributes(row: &Headend) -> String {
    let mut words = vec!["segs SEGMENTS"];
    for (takes, form) in [
        (row.hmac, "[ hmac KEYID ]"),
        (row.tunsrc, "[ tunsrc IPV6 ]"),
        (row.lookup, "[ lookup TABLE ]"),
    ] {
        if takes {
            words.push(form);
        }
    }
    words.join(" ")
}

fn families(row: &Headend) -> String {
    let name = |family: &Family| match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    };
    join(row.families.iter().map(name), ", ")
}

fn sidestep(row: &Descriptor) -> String {
    match row.flavors {
        [] => "yes".to_owned(),
        flavors => format!(
            "yes, with {}",
            join(flavors.iter().map(|flavor| flavor.word()), ", ")
        ),
    }
}

fn linux(row: &Descriptor) -> String {
    match (row.kernel_action, row.beyond_linux.why) {
        (None, _) => "no".to_owned(),
        (Some(_), "") => "yes".to_owned(),
        (Some(_), why) => format!("in part: {why}"),
    }
}

fn headend_linux(row: &Headend) -> &'static str {
    match row.kernel_mode {
        None => "no",
        Some(_) => "yes",
    }
}

/// Returns the grammar of routes in the notation of `ip route help`.
pub fn grammar() -> String {
    let mut text = String::from(
        "ROUTE := [ TYPE ] PREFIX [ from PREFIX ] [ table TABLE ] [ metric NUMBER ] [ tos TOS ]\n\
        \x20        [ proto PROTO ] [ src ADDRESS ] [ mtu NUMBER ] { NH | nhid NUMBER | nexthop NH [ nexthop NH ]... }\n\
         TYPE := { unicast | local | broadcast | anycast | multicast |\n\
        \x20         blackhole | unreachable | prohibit | throw }\n\
         PREFIX := { default | ADDRESS | ADDRESS/LENGTH }\n\
         NH := [ encap ENCAP ] [ via [ inet | inet6 ] ADDRESS ] [ dev DEV ] [ onlink ] [ weight NUMBER ]\n\
         TABLE := { local | main | default | NUMBER }\n",
    );
    let _ = writeln!(
        text,
        "ENCAP := {{ seg6 SEG6 | seg6local action ACTION [ require-hmac ] [ count ] }}"
    );
    let _ = writeln!(
        text,
        "SEG6 := mode MODE segs SEGMENTS [ hmac KEYID ] [ tunsrc IPV6 ] [ lookup TABLE ]"
    );
    let _ = writeln!(
        text,
        "MODE := {{ {} }}",
        join(HEADENDS.iter().map(|row| row.word), " | ")
    );
    let _ = writeln!(
        text,
        "SEGMENTS := IPV6[,IPV6]...   (at most {SEGMENTS_MAX})"
    );
    let mut lead = "ACTION := { ";
    for row in BEHAVIORS {
        let _ = write!(text, "{lead}{}", usage(row));
        lead = " |\n            ";
    }
    text.push_str(" }\n");
    let _ = writeln!(
        text,
        "FLAVORS := FLAVOR[,FLAVOR]... [ lblen BITS ] [ nflen BITS ]\nFLAVOR := {{ {} }}",
        join(Flavor::ALL.iter().map(|flavor| flavor.word()), " | ")
    );
    text.push_str(
        "RULE := [ not ] [ from PREFIX ] [ to PREFIX ] [ iif NAME ] [ oif NAME ] [ priority NUMBER ]\n\
        \x20       { lookup TABLE | l3mdev | blackhole | unreachable | prohibit | seg6local-behaviour PROXY }\n\
         PROXY := { End.AS | End.AD | End.AM }\n\
         NEIGHBOR := ADDRESS lladdr MAC dev DEV [ nud STATE ]\n\
         VLAN := table TABLE { vid VID [ inner VID ] | untagged } dev DEV\n",
    );
    text
}

/// Returns the words of the encapsulation that may follow these words on a route line, for shell
/// completion.
///
/// Addresses, numbers and interfaces have no candidates.
pub fn completions(words: &[&str]) -> Vec<&'static str> {
    let last = words.last().copied().unwrap_or_default();
    match last {
        "encap" => return vec!["seg6", "seg6local"],
        "seg6" => return vec!["mode"],
        "seg6local" => return vec!["action"],
        "action" => return BEHAVIORS.iter().map(|row| row.name).collect(),
        "mode" => return HEADENDS.iter().map(|row| row.word).collect(),
        "srh" => return vec!["segs"],
        "table" | "lookup" => return vec!["main", "local", "default"],
        "via" | "dev" | "segs" | "nh4" | "nh6" | "oif" | "iif" | "vrftable" | "vlantable"
        | "tunsrc" | "hmac" | "src" | "metric" | "mtu" | "from" | "nhid" | "weight" | "tos"
        | "proto" | "lblen" | "nflen" | "nheth" | "age" | "interval" | "policy" | "dscp" => {
            return vec![];
        }
        _ => {}
    }
    if words.iter().rev().nth(1) == Some(&"dscp") {
        return vec!["policy"];
    }
    if words.contains(&"policy") {
        let mut next = vec!["dscp", "policy", "table", "metric", "from", "proto"];
        next.retain(|keyword| *keyword == "dscp" || !words.contains(keyword));
        return next;
    }
    let start = words.iter().rposition(|word| *word == "encap");
    let inside = start.map_or(&[][..], |start| &words[start..]);
    let action = value_of(inside, "action").and_then(super::Behavior::from_name);
    let mode = value_of(inside, "mode").and_then(super::EncapMode::from_word);
    if let Some(row) = action.map(super::Behavior::descriptor) {
        if last == "flavors" {
            return row.flavors.iter().map(|flavor| flavor.word()).collect();
        }
        let values = row.attributes().find(|a| a.keyword() == last).map(words_of);
        if let Some(values) = values.filter(|values| !values.is_empty()) {
            return values;
        }
        let mut next: Vec<_> = row
            .attributes()
            .map(Attribute::keyword)
            .filter(|keyword| !inside.contains(keyword))
            .collect();
        if words.iter().rev().nth(1) == Some(&Attribute::Liveness.keyword()) {
            next.insert(0, "interval");
        }
        next.extend(NEXT_HOP_WORDS);
        return next;
    }
    if let Some(row) = mode.map(super::EncapMode::descriptor) {
        let mut next = vec!["segs"];
        next.extend(
            [
                (row.hmac, "hmac"),
                (row.tunsrc, "tunsrc"),
                (row.lookup, "lookup"),
            ]
            .iter()
            .filter_map(|(takes, word)| takes.then_some(*word)),
        );
        next.retain(|keyword| !inside.contains(keyword));
        next.extend(NEXT_HOP_WORDS);
        return next;
    }
    let mut next = vec![
        "encap", "policy", "dscp", "table", "metric", "from", "src", "mtu", "proto", "nexthop",
    ];
    next.extend(NEXT_HOP_WORDS);
    next.retain(|keyword| *keyword == "nexthop" || !words.contains(keyword));
    next
}

fn value_of<'a>(words: &[&'a str], keyword: &str) -> Option<&'a str> {
    let at = words.iter().position(|word| *word == keyword)?;
    words.get(at + 1).copied()
}

const NEXT_HOP_WORDS: [&str; 3] = ["via", "dev", "onlink"];

/// Returns every word of the encapsulation grammar, separated by spaces, for shells that complete
/// from a plain list.
pub fn completion_words() -> String {
    let mut words = vec![
        "encap",
        "seg6",
        "seg6local",
        "action",
        "mode",
        "segs",
        "hmac",
        "tunsrc",
        "lookup",
    ];
    words.extend(BEHAVIORS.iter().map(|row| row.name));
    words.extend(HEADENDS.iter().map(|row| row.word));
    words.extend(Attribute::ALL.map(Attribute::keyword));
    words.extend(Flavor::ALL.map(Flavor::word));
    words.extend(Attribute::ALL.into_iter().flat_map(words_of));
    words.push("interval");
    words.join(" ")
}

/// Returns the documentation table in Markdown.
pub fn markdown() -> String {
    let mut text = String::from(
        "| Behavior | Words | Decapsulates | Source | Sidestep | Linux |\n|---|---|---|---|---|---|\n",
    );
    for row in BEHAVIORS {
        let _ = writeln!(
            text,
            "| {} | `{}` | {} | {} | {} | {} |",
            row.name,
            usage(row).replace('|', "\\|"),
            row.inner.word(),
            row.source,
            sidestep(row),
            linux(row)
        );
    }
    text.push_str("\n| Headend | Words | Encapsulates | Routes | Source | Sidestep | Linux |\n|---|---|---|---|---|---|---|\n");
    for row in HEADENDS {
        let _ = writeln!(
            text,
            "| {} | `mode {} {}` | {} | {} | {} | yes | {} |",
            row.name,
            row.word,
            headend_attributes(row),
            row.inner.word(),
            families(row),
            row.source,
            headend_linux(row)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_names_every_behavior_and_mode() {
        for text in [help(), grammar(), completion_words(), markdown()] {
            for name in BEHAVIORS
                .iter()
                .map(|row| row.name)
                .chain(HEADENDS.iter().map(|row| row.word))
            {
                assert!(text.contains(name), "{name} is missing in\n{text}");
            }
        }
    }

    #[test]
    fn completion_offers_the_remaining_attributes() {
        assert!(completions(&["fc00::1", "encap", "seg6local", "action"]).contains(&"End.DT46"));
        let next = completions(&[
            "fc00::1",
            "encap",
            "seg6local",
            "action",
            "End.DT6",
            "table",
            "100",
        ]);
        assert!(next.contains(&"vrftable") && next.contains(&"dev") && !next.contains(&"table"));
        assert_eq!(completions(&["fc00::1", "dev"]), Vec::<&str>::new());
        let proxy = ["fdf1::1", "encap", "seg6local", "action", "End.AD"];
        let after = |more: &[&'static str]| completions(&[&proxy, more].concat());
        assert_eq!(after(&["chain"]), ["inbound", "fromVNF"]);
        assert_eq!(after(&["liveness"]), ["icmp", "arp", "link"]);
        assert_eq!(after(&["liveness", "link"])[0], "interval");
        assert_eq!(after(&["age"]), Vec::<&str>::new());
        assert!(after(&["age", "5"]).contains(&"flows"));
    }

    #[test]
    fn every_row_of_the_markdown_table_has_equal_cells() {
        for part in markdown().split("\n\n") {
            let cells = |line: &str| line.replace("\\|", "").matches('|').count();
            let header = part.lines().map(cells).next();
            assert!(
                part.lines().all(|line| Some(cells(line)) == header),
                "{part}"
            );
        }
    }
}

//! Parser and printer of ether devices: `NAME { segs A,B,… | policy NAME } [red] [mtu N]
//! [tunsrc ADDRESS] [attach DEV [ all | untagged | vlan VID [inner VID] ]
//! [ rewrite pop | push VID | translate VID ]]`.

use std::fmt::Write;

use super::words::{Once, Words, invalid, unknown};
use super::{encap, policy};
use crate::config::{INTERFACE_NAME, is_interface_name};
use crate::error::ConfigError;
use crate::ether::{
    AttachedFrames, Attachment, Ether, EtherPath, MTU_MAX, MTU_MIN, NAME_MAX, TagRewrite,
};
use crate::vlan::{VID_MAX, Vids};

const EXPECTED: &str = "segs, policy, red, mtu, tunsrc, attach or detach";

/// Parses a device and its name. The device has everything else as in `before`.
///
/// # Errors
/// Returns the first unknown, repeated, invalid or missing word.
pub fn parse(words: &mut Words, before: Option<&Ether>) -> Result<(String, Ether), ConfigError> {
    let name = parse_name(words)?;
    let mut seen = Once::default();
    let (mut path, mut reduced, mut mtu, mut tunsrc) = (None, false, None, None);
    let mut attached = None;
    while let Some(word) = words.take() {
        let key = match word.text {
            "segs" | "policy" => "path",
            "red" => "red",
            "mtu" => "mtu",
            "tunsrc" => "tunsrc",
            "attach" | "detach" => "attach",
            _ => return Err(unknown(word, EXPECTED)),
        };
        if let Some(other) = seen.word("path").filter(|_| key == "path")
            && other.text != word.text
        {
            let problem = format!("`{}` and `{}` exclude each other:", other.text, word.text);
            return Err(ConfigError::new(
                word.place,
                problem,
                word.text,
                "one of them",
            ));
        }
        seen.note(key, word)?;
        match word.text {
            "segs" => path = Some(EtherPath::Segments(encap::parse_list(words, word)?)),
            "policy" => path = Some(EtherPath::Policy(policy::parse_name(words)?)),
            "red" => reduced = true,
            "attach" => attached = Some(Some(parse_attachment(words)?)),
            "detach" => attached = Some(None),
            "mtu" => mtu = Some(words.number("mtu", MTU_MIN, MTU_MAX)?),
            _ => tunsrc = Some(words.address6("tunsrc")?),
        }
    }
    let has_path = path.is_some();
    let Some(path) = path.or_else(|| before.map(|it| it.path.clone())) else {
        return Err(words.missing("`segs` or `policy`", "segs A,B,… or policy NAME"));
    };
    // The word belongs to the path.
    let reduced = reduced || !has_path && before.is_some_and(|it| it.reduced);
    let ether = Ether {
        path,
        reduced,
        mtu: mtu.or(before.and_then(|it| it.mtu)),
        tunsrc: tunsrc.or(before.and_then(|it| it.tunsrc)),
        attached: attached.unwrap_or_else(|| before.and_then(|it| it.attached.clone())),
    };
    Ok((name, ether))
}

/// Parses `DEV [ all | untagged | vlan VID [inner VID] ] [rewrite …]`.
fn parse_attachment(words: &mut Words) -> Result<Attachment, ConfigError> {
    let word = words.value("attach", INTERFACE_NAME)?;
    if !is_interface_name(word.text) {
        return Err(invalid(word, "attach", INTERFACE_NAME));
    }
    let vid = |words: &mut Words, name| words.number(name, 1, VID_MAX.into());
    let frames = if words.take_if("untagged").is_some() {
        AttachedFrames::Only(Vids::Untagged)
    } else if words.take_if("vlan").is_some() {
        let outer = vid(words, "vlan")? as u16;
        AttachedFrames::Only(match words.take_if("inner") {
            Some(_) => Vids::OuterInner(outer, vid(words, "inner")? as u16),
            None => Vids::Outer(outer),
        })
    } else {
        words.take_if("all");
        AttachedFrames::All
    };
    let mut attachment = Attachment {
        port: word.text.to_owned(),
        frames,
        rewrite: None,
    };
    attachment.rewrite = parse_rewrite(words, &attachment)?;
    Ok(attachment)
}

/// Parses `[ rewrite pop | push VID | translate VID ]`.
fn parse_rewrite(
    words: &mut Words,
    attachment: &Attachment,
) -> Result<Option<TagRewrite>, ConfigError> {
    const EXPECTED: &str = "pop, push VID or translate VID";
    if words.take_if("rewrite").is_none() {
        return Ok(None);
    }
    let Some(word) = words.take() else {
        return Err(words.missing("the change of the tag", EXPECTED));
    };
    let vid = |words: &mut Words, name| words.number(name, 1, VID_MAX.into());
    let rewrite = match word.text {
        "pop" => TagRewrite::Pop,
        "push" => TagRewrite::Push(vid(words, "push")? as u16),
        "translate" => TagRewrite::Translate(vid(words, "translate")? as u16),
        _ => return Err(invalid(word, "rewrite", EXPECTED)),
    };
    if attachment.outer().is_none() && !matches!(rewrite, TagRewrite::Push(_)) {
        let problem = "the attached frames need a tag for";
        let expected = "`vlan VID` before `rewrite`, or `rewrite push VID`";
        return Err(ConfigError::new(word.place, problem, word.text, expected));
    }
    Ok(Some(rewrite))
}

/// Parses the name of a device.
///
/// # Errors
/// The name is missing or invalid.
pub fn parse_name(words: &mut Words) -> Result<String, ConfigError> {
    let expected = "the name of an ether device: an interface name of at most 13 characters";
    let Some(word) = words.take() else {
        return Err(words.missing("the name of an ether device", expected));
    };
    if word.text.len() > NAME_MAX || !is_interface_name(word.text) {
        return Err(invalid(word, "ether", expected));
    }
    Ok(word.text.to_owned())
}

/// Prints a device.
pub fn print(name: &str, ether: &Ether) -> String {
    let mut text = name.to_owned();
    match &ether.path {
        EtherPath::Segments(segments) => {
            let _ = write!(text, " segs {}", encap::print_list(segments));
        }
        EtherPath::Policy(policy) => {
            let _ = write!(text, " policy {policy}");
        }
    }
    if ether.reduced {
        text.push_str(" red");
    }
    if let Some(mtu) = ether.mtu {
        let _ = write!(text, " mtu {mtu}");
    }
    if let Some(tunsrc) = ether.tunsrc {
        let _ = write!(text, " tunsrc {tunsrc}");
    }
    if let Some(attachment) = &ether.attached {
        let frames = frames_text(attachment.frames);
        let _ = write!(text, " attach {} {frames}", attachment.port);
        let _ = match attachment.rewrite {
            None => Ok(()),
            Some(TagRewrite::Pop) => write!(text, " rewrite pop"),
            Some(TagRewrite::Push(vid)) => write!(text, " rewrite push {vid}"),
            Some(TagRewrite::Translate(vid)) => write!(text, " rewrite translate {vid}"),
        };
    }
    text
}

/// Prints the frames of an attachment.
pub fn frames_text(frames: AttachedFrames) -> String {
    match frames {
        AttachedFrames::All => "all".into(),
        AttachedFrames::Only(Vids::Untagged) => "untagged".into(),
        AttachedFrames::Only(Vids::Outer(outer)) => format!("vlan {outer}"),
        AttachedFrames::Only(Vids::OuterInner(outer, inner)) => {
            format!("vlan {outer} inner {inner}")
        }
    }
}

/// Returns the words that may follow these words on the line of a device, for shell completion.
pub fn completions(words: &[&str]) -> Vec<&'static str> {
    let there = |word: &str| words.contains(&word);
    match words {
        []
        | [
            ..,
            "segs" | "policy" | "mtu" | "tunsrc" | "attach" | "vlan" | "inner" | "push"
            | "translate",
        ] => return vec![],
        [.., "rewrite"] => return vec!["pop", "push", "translate"],
        [.., "attach", _] => return vec!["all", "untagged", "vlan", "rewrite"],
        _ => {}
    }
    let fits = |word: &&str| match *word {
        "segs" | "policy" => !there("segs") && !there("policy"),
        other => !there(other),
    };
    let all = ["segs", "policy", "red", "mtu", "tunsrc", "attach"].into_iter();
    all.filter(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<(String, Ether), ConfigError> {
        parse(&mut Words::from_line(line), None)
    }

    #[test]
    fn a_device_is_written_as_it_is_read() {
        for line in [
            "lan0 segs fc00:2::d2",
            "lan0 segs fc00:2::e,fc00:3::d2 red mtu 8900 tunsrc fc00:1::1",
            "thirteen-char policy gold",
            "wire0 segs fc00:2::d2 attach eth1 all",
            "wire0 segs fc00:2::d2 attach eth1 untagged",
            "wire0 segs fc00:2::d2 attach eth1 vlan 4094 inner 1",
            "wire0 segs fc00:2::d2 attach eth1 vlan 42 rewrite pop",
            "wire0 segs fc00:2::d2 attach eth1 untagged rewrite push 4094",
            "wire0 segs fc00:2::d2 attach eth1 vlan 42 inner 1 rewrite translate 43",
        ] {
            let (name, ether) = read(line).expect(line);
            assert_eq!(print(&name, &ether), line);
        }
    }

    #[test]
    fn what_a_change_does_not_name_stays() {
        let (_, before) = read("lan0 segs fc00:2::d2 red mtu 1400").expect("well-formed");
        let mut words = Words::from_line("lan0 policy gold");
        let (name, after) = parse(&mut words, Some(&before)).expect("well-formed");
        assert_eq!(print(&name, &after), "lan0 policy gold mtu 1400");
    }

    #[test]
    fn completion_offers_what_may_still_come() {
        let after = |line: &str| completions(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(after(""), [""; 0]);
        let all = ["segs", "policy", "red", "mtu", "tunsrc", "attach"];
        assert_eq!(after("lan0"), all);
        let frames = ["all", "untagged", "vlan", "rewrite"];
        assert_eq!(after("lan0 attach eth1"), frames);
        let changes = ["pop", "push", "translate"];
        assert_eq!(after("lan0 attach eth1 vlan 4 rewrite"), changes);
        assert_eq!(after("lan0 segs"), [""; 0]);
        assert_eq!(after("lan0 segs fc00::1 red"), ["mtu", "tunsrc", "attach"]);
    }

    #[test]
    fn what_is_wrong_is_said_at_its_word() {
        let long = format!("lan0 segs {}", ["fc00::1"; 17].join(","));
        for (line, expected) in [
            ("", "word 1: missing the name of an ether device"),
            ("fourteen-chars segs fc00::1", "word 1: invalid `ether`"),
            ("a/b segs fc00::1", "word 1: invalid `ether`"),
            ("lan0", "word 2: missing `segs` or `policy`"),
            (
                "lan0 segs fc00::1 policy gold",
                "word 4: `segs` and `policy`",
            ),
            (
                "lan0 segs fc00::1 segs fc00::2",
                "word 4: duplicate keyword",
            ),
            ("lan0 segs ff02::1", "word 2:"),
            (&long, "word 2: too many segments (17)"),
            ("lan0 segs fc00::1 mtu 1279", "word 5: invalid `mtu`"),
            ("lan0 segs fc00::1 mtu 65536", "word 5: invalid `mtu`"),
            ("lan0 segs fc00::1 tunsrc 10.0.0.1", "word 5:"),
            ("lan0 vlan 5", "word 2: unknown keyword"),
            ("lan0 segs fc00::1 attach", "word 5: `attach` needs a value"),
            ("lan0 segs fc00::1 attach a/b", "word 5: invalid `attach`"),
            (
                "lan0 segs fc00::1 attach eth1 vlan 0",
                "word 7: invalid `vlan`",
            ),
            (
                "lan0 segs fc00::1 attach eth1 vlan 4095",
                "word 7: invalid `vlan`",
            ),
            (
                "lan0 segs fc00::1 attach eth1 vlan 1 inner 0",
                "word 9: invalid",
            ),
            (
                "lan0 segs fc00::1 attach eth1 vlan 1 rewrite",
                "word 9: missing the change of the tag",
            ),
            (
                "lan0 segs fc00::1 attach eth1 vlan 1 rewrite swap",
                "word 9: invalid `rewrite`",
            ),
            (
                "lan0 segs fc00::1 attach eth1 vlan 1 rewrite push 4095",
                "word 10: invalid `push`",
            ),
            (
                "lan0 segs fc00::1 attach eth1 all rewrite pop",
                "word 8: the attached frames need a tag for",
            ),
            (
                "lan0 segs fc00::1 attach eth1 untagged rewrite translate 5",
                "word 8: the attached frames need a tag for",
            ),
            (
                "lan0 segs fc00::1 attach eth1 detach",
                "word 6: duplicate keyword",
            ),
        ] {
            let found = read(line).expect_err(line).to_string();
            assert!(found.starts_with(expected), "{line}: {found}");
        }
    }
}

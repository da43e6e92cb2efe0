//! Parser and printer of `encap seg6 …` and `encap seg6local …`.

use std::fmt::Write;
use std::net::Ipv6Addr;

use super::words::{Once, Words, invalid, unknown_word};
use super::{Context, Names, Style, Word, policy, proxy, value};
use crate::behavior::attribute::{Attribute, Flavor};
use crate::behavior::check::{Wrong, join};
use crate::behavior::endpoint::BEHAVIORS;
use crate::behavior::headend::HEADENDS;
use crate::behavior::{Behavior, EncapMode, Flavors, SEGMENTS_MAX, Seg6Encap, Seg6Local};
use crate::error::ConfigError;
use crate::route::{Encap, Family};
use crate::vlan::VlanTableId;

/// Default lengths of a NEXT-C-SID: Locator-Block and Locator-Node Function, in bits. Linux:
/// `SEG6_LOCAL_LCBLOCK_DBITS`, `SEG6_LOCAL_LCNODE_FN_DBITS`.
const NEXT_CSID_BITS: (u8, u8) = (32, 16);
/// Default lengths of a REPLACE-C-SID, from the example in RFC 9800 4.2.
const REPLACE_CSID_BITS: (u8, u8) = (48, 32);

/// A parsed encapsulation. It can be checked once the family of the route is known.
pub(super) struct Parsed<'a> {
    pub(super) encap: Encap,
    /// The word `seg6` or `seg6local`.
    pub(super) kind: Word<'a>,
    seen: Once<'a>,
}

impl Parsed<'_> {
    /// Returns the family that the encapsulation requires of its route, if any.
    pub(super) fn family(&self) -> Option<Family> {
        match &self.encap {
            Encap::Seg6Local(_) => Some(Family::V6),
            Encap::Seg6(seg6) => match seg6.mode.descriptor().families {
                [only] => Some(*only),
                _ => None,
            },
            Encap::Policy(_) | Encap::Binding(_) | Encap::Unsupported(_) => None,
        }
    }

    pub(super) fn check(&self, family: Family) -> Result<(), ConfigError> {
        let wrong = match &self.encap {
            Encap::Seg6(seg6) => seg6.check(family),
            Encap::Seg6Local(local) => {
                if family == Family::V4 {
                    let problem = "`encap seg6local` on an IPv4 route";
                    return Err(ConfigError::new(
                        self.kind.place,
                        problem,
                        "",
                        "an IPv6 prefix: a SID",
                    ));
                }
                local.check()
            }
            Encap::Policy(_) | Encap::Binding(_) | Encap::Unsupported(_) => Ok(()),
        };
        wrong.map_err(|wrong| self.error(&wrong))
    }

    /// Returns the error with the place of the offending word.
    pub(super) fn error(&self, wrong: &Wrong) -> ConfigError {
        let word = self.seen.word(wrong.keyword).unwrap_or(self.kind);
        let mut expected = wrong.expected.clone();
        // As in iproute2, a `table` after the behavior belongs to the behavior. (Linux then ignores
        // it.)
        if wrong.keyword == Attribute::Table.keyword() {
            expected.push_str("; write the route's own table after `dev` or before `encap`");
        }
        // A missing word is at the keyword in front.
        let is_missing = matches!(wrong.keyword, "action" | "mode");
        let value = if is_missing { "" } else { word.text };
        ConfigError::new(word.place, wrong.problem.clone(), value, expected)
    }
}

/// Parses the words after `encap`.
pub(super) fn parse<'a>(words: &mut Words<'a>, ctx: &Context) -> Result<Parsed<'a>, ConfigError> {
    let expected = "seg6 or seg6local";
    let kind = words.value("encap", expected)?;
    match kind.text {
        "seg6" => parse_seg6(words, kind, ctx),
        "seg6local" => parse_seg6local(words, kind, ctx),
        _ => Err(ConfigError::new(
            kind.place,
            "unknown encapsulation",
            kind.text,
            expected,
        )),
    }
}

fn parse_seg6<'a>(
    words: &mut Words<'a>,
    kind: Word<'a>,
    ctx: &Context,
) -> Result<Parsed<'a>, ConfigError> {
    let mut seen = Once::default();
    let mut mode = None;
    let mut segments = Segments::default();
    let (mut hmac, mut tunsrc, mut lookup) = (None, None, None);
    while let Some(word) = words.peek() {
        let name = match word.text {
            "mode" => "mode",
            "segs" => "segs",
            "hmac" => "hmac",
            "tunsrc" => "tunsrc",
            "lookup" => "lookup",
            _ => break,
        };
        words.take();
        seen.note(name, word)?;
        match name {
            "mode" => {
                let expected = join(HEADENDS.iter().map(|row| row.word), ", ");
                let value = words.value(name, &expected)?;
                let unknown =
                    || ConfigError::new(value.place, "unknown mode", value.text, expected);
                mode = Some(EncapMode::from_word(value.text).ok_or_else(unknown)?);
            }
            "segs" => segments = parse_segments(words, word)?,
            "hmac" => hmac = Some(parse_hmac(words, segments.shown)?),
            "tunsrc" => tunsrc = Some(words.address6(name)?),
            _ => lookup = Some(words.table(name, ctx.names)?),
        }
    }
    let Some(mode) = mode else {
        let expected = join(HEADENDS.iter().map(|row| row.word), ", ");
        return Err(ConfigError::new(
            kind.place,
            "missing `mode` after",
            kind.text,
            format!("mode {expected}"),
        ));
    };
    if segments.list.is_empty() {
        let expected = format!("segs with 1 to {SEGMENTS_MAX} IPv6 addresses, separated by commas");
        return Err(ConfigError::new(
            kind.place,
            "missing `segs` after",
            kind.text,
            expected,
        ));
    }
    segments.drop_placeholder(mode.inserts());
    let encap = Encap::Seg6(Seg6Encap {
        mode,
        segments: segments.list,
        hmac,
        tunsrc,
        lookup,
    });
    Ok(Parsed { encap, kind, seen })
}

/// A keyword after `encap seg6local`.
enum Key {
    Action,
    /// Locator-Block length of a C-SID.
    Lblen,
    /// Locator-Node Function length of a NEXT-C-SID, C-SID length of a REPLACE-C-SID.
    Nflen,
    Attribute(Attribute),
}

impl Key {
    fn of(word: &str) -> Option<Self> {
        match word {
            "action" => Some(Self::Action),
            "lblen" => Some(Self::Lblen),
            "nflen" => Some(Self::Nflen),
            // `ip route show` omits `srh`.
            "segs" => Some(Self::Attribute(Attribute::Srh)),
            other => Attribute::from_keyword(other).map(Self::Attribute),
        }
    }

    fn keyword(&self) -> &'static str {
        match self {
            Self::Action => "action",
            Self::Lblen => "lblen",
            Self::Nflen => "nflen",
            Self::Attribute(attribute) => attribute.keyword(),
        }
    }
}

fn parse_seg6local<'a>(
    words: &mut Words<'a>,
    kind: Word<'a>,
    ctx: &Context,
) -> Result<Parsed<'a>, ConfigError> {
    let mut seen = Once::default();
    let mut local = Seg6Local::new(Behavior::End);
    let mut shown = None;
    let (mut block, mut function) = (None, None);
    while let Some(word) = words.peek() {
        let Some(key) = Key::of(word.text) else {
            break;
        };
        words.take();
        let name = key.keyword();
        seen.note(name, word)?;
        let attribute = match key {
            Key::Action => {
                local.action = parse_action(words)?;
                continue;
            }
            Key::Lblen => {
                block = Some(words.number(name, 1, 255)? as u8);
                continue;
            }
            Key::Nflen => {
                function = Some(words.number(name, 1, 255)? as u8);
                continue;
            }
            Key::Attribute(attribute) => attribute,
        };
        match attribute {
            Attribute::Table => local.table = Some(words.table(name, ctx.names)?),
            Attribute::Vrftable => local.vrftable = Some(words.table(name, ctx.names)?),
            Attribute::Nh4 => {
                local.nh4 = Some(words.parsed(name, "an IPv4 address", |text| text.parse().ok())?);
            }
            Attribute::Nh6 => local.nh6 = Some(words.address6(name)?),
            Attribute::Iif => local.iif = Some(words.interface(name, ctx.names)?),
            Attribute::Oif => local.oif = Some(words.interface(name, ctx.names)?),
            Attribute::L2dev => local.l2dev = Some(words.interface(name, ctx.names)?),
            Attribute::Vlantable => {
                local.vlantable = Some(VlanTableId(words.number(name, 1, u32::MAX)?));
            }
            Attribute::Flavors => parse_flavors(words, &mut local.flavors)?,
            Attribute::RequireHmac => local.require_hmac = true,
            Attribute::Count => local.count = true,
            Attribute::Srh => shown = Some(parse_srh(words, word)?),
            other => proxy::parse(other, words, &mut local.proxy)?,
        }
    }
    if seen.word("action").is_none() {
        let expected = format!(
            "action {}",
            join(BEHAVIORS.iter().map(|row| row.name), ", ")
        );
        return Err(ConfigError::new(
            kind.place,
            "missing `action` after",
            kind.text,
            expected,
        ));
    }
    if let Some(mut segments) = shown {
        segments.drop_placeholder(local.action == Behavior::EndB6);
        local.segments = segments.list;
    }
    let flavors = &mut local.flavors;
    let compressed = flavors.next_csid.is_some() || flavors.replace_csid.is_some();
    for (given, name) in [(block.is_some(), "lblen"), (function.is_some(), "nflen")] {
        if let Some(word) = seen.word(name).filter(|_| given && !compressed) {
            let problem = "flavor next-csid or replace-csid is missing for";
            return Err(ConfigError::new(
                word.place,
                problem,
                word.text,
                "`flavors next-csid` or `flavors replace-csid`",
            ));
        }
    }
    for bits in [&mut flavors.next_csid, &mut flavors.replace_csid]
        .into_iter()
        .flatten()
    {
        *bits = (block.unwrap_or(bits.0), function.unwrap_or(bits.1));
    }
    Ok(Parsed {
        encap: Encap::Seg6Local(local),
        kind,
        seen,
    })
}

fn parse_action(words: &mut Words) -> Result<Behavior, ConfigError> {
    let expected = join(BEHAVIORS.iter().map(|row| row.name), ", ");
    let value = words.value("action", &expected)?;
    Behavior::from_name(value.text)
        .ok_or_else(|| unknown_word(value, "unknown behavior", &expected))
}

fn parse_flavors(words: &mut Words, flavors: &mut Flavors) -> Result<(), ConfigError> {
    let expected = join(Flavor::ALL.iter().map(|flavor| flavor.word()), ", ");
    let value = words.value("flavors", &expected)?;
    for text in value.text.split(',') {
        // iproute2 compares flavors, and only these, ignoring case.
        let flavor = Flavor::ALL
            .into_iter()
            .find(|flavor| flavor.word().eq_ignore_ascii_case(text));
        let Some(flavor) = flavor else {
            return Err(ConfigError::new(
                value.place,
                "unknown flavor",
                text,
                expected,
            ));
        };
        if flavors.has(flavor) {
            return Err(ConfigError::new(
                value.place,
                "duplicate flavor",
                text,
                "each flavor once",
            ));
        }
        match flavor {
            Flavor::Psp => flavors.psp = true,
            Flavor::Usp => flavors.usp = true,
            Flavor::Usd => flavors.usd = true,
            Flavor::NextCsid => flavors.next_csid = Some(NEXT_CSID_BITS),
            Flavor::ReplaceCsid => flavors.replace_csid = Some(REPLACE_CSID_BITS),
            Flavor::Nat => flavors.nat = true,
        }
    }
    Ok(())
}

/// Segments in order of travel, and whether they are in the notation of `ip route show`.
#[derive(Default)]
struct Segments {
    list: Vec<Ipv6Addr>,
    shown: bool,
}

impl Segments {
    /// Removes the placeholder `::`. For an inserted SRH, the kernel keeps a last segment for the
    /// packet's own destination and prints it as `::`.
    fn drop_placeholder(&mut self, inserted: bool) {
        if inserted && self.shown && self.list.last() == Some(&Ipv6Addr::UNSPECIFIED) {
            self.list.pop();
        }
    }
}

/// Parses the value of `segs`: `A,B`.
pub(super) fn parse_list(words: &mut Words, keyword: Word) -> Result<Vec<Ipv6Addr>, ConfigError> {
    let segments = parse_segments(words, keyword)?;
    let encap = Seg6Encap {
        mode: EncapMode::Encap,
        segments: segments.list,
        hmac: None,
        tunsrc: None,
        lookup: None,
    };
    let wrong =
        |wrong: Wrong| ConfigError::new(keyword.place, wrong.problem, keyword.text, wrong.expected);
    encap.check(Family::V6).map_err(wrong)?;
    Ok(encap.segments)
}

/// Parses the value of `segs`: `A,B`, or `2 [ A B ]`.
fn parse_segments(words: &mut Words, keyword: Word) -> Result<Segments, ConfigError> {
    let expected = format!("1 to {SEGMENTS_MAX} IPv6 addresses, separated by commas");
    let first = words.value("segs", &expected)?;
    let one = |place, text: &str| {
        text.parse::<Ipv6Addr>()
            .map_err(|_| ConfigError::new(place, "invalid segment", text, expected.clone()))
    };
    let mut list = vec![];
    let shown = words.take_if("[").is_some();
    if shown {
        loop {
            let word = words.value("segs", "] after the last segment")?;
            if word.text == "]" {
                break;
            }
            list.push(one(word.place, word.text)?);
        }
        if value::number(first.text) != Some(list.len() as u32) {
            return Err(invalid(
                first,
                "segs",
                format!("{}, the number of segments", list.len()),
            ));
        }
    } else {
        for text in first.text.split(',') {
            list.push(one(first.place, text)?);
        }
    }
    // One segment more than the maximum may be the placeholder of an insertion. `check` counts
    // again.
    if list.len() > SEGMENTS_MAX + usize::from(shown) {
        let problem = format!("too many segments ({}) after", list.len());
        return Err(ConfigError::new(
            keyword.place,
            problem,
            keyword.text,
            expected,
        ));
    }
    Ok(Segments { list, shown })
}

fn parse_srh(words: &mut Words, word: Word) -> Result<Segments, ConfigError> {
    if word.text == "srh" {
        let expected = "segs";
        let segs = words.value("srh", expected)?;
        if segs.text != "segs" {
            return Err(invalid(segs, "srh", expected));
        }
    }
    let segments = parse_segments(words, word)?;
    match words.take_if("hmac") {
        None => Ok(segments),
        Some(hmac) => {
            let problem = "not supported inside `srh`";
            Err(ConfigError::new(hmac.place, problem, hmac.text, ""))
        }
    }
}

/// `ip route show` prints the key ID in hexadecimal without `0x`. As input, only `0x` marks
/// hexadecimal.
fn parse_hmac(words: &mut Words, shown: bool) -> Result<u32, ConfigError> {
    if !shown {
        return words.number("hmac", 1, u32::MAX);
    }
    words.parsed(
        "hmac",
        "a key id in hexadecimal, as `ip route show` prints it",
        |text| {
            let hex = text.bytes().all(|b| b.is_ascii_hexdigit());
            hex.then(|| u32::from_str_radix(text, 16).ok())?
                .filter(|id| *id != 0)
        },
    )
}

/// Prints `encap …`, without surrounding blanks.
pub fn print(encap: &Encap, names: &dyn Names, style: Style) -> String {
    match encap {
        Encap::Seg6(seg6) => print_seg6(seg6, names, style),
        Encap::Seg6Local(local) => print_seg6local(local, names, style),
        Encap::Policy(steering) => policy::print_steering(steering),
        Encap::Binding(policy) => format!("bsid of policy {policy}"),
        Encap::Unsupported(what) => format!("encap {what}"),
    }
}

fn print_seg6(seg6: &Seg6Encap, names: &dyn Names, style: Style) -> String {
    let mut text = format!("encap seg6 mode {}", seg6.mode.descriptor().word);
    if let Some(tunsrc) = seg6.tunsrc {
        let _ = write!(text, " tunsrc {tunsrc}");
    }
    let list = segments_text(&seg6.segments, seg6.mode.inserts(), style);
    let _ = write!(text, " {list}");
    if let Some(hmac) = seg6.hmac {
        let _ = match style {
            Style::Add => write!(text, " hmac {hmac}"),
            Style::Show => write!(text, " hmac {hmac:X}"),
        };
    }
    if let Some(lookup) = seg6.lookup {
        let _ = write!(text, " lookup {}", value::table_text(lookup, names));
    }
    text
}

fn print_seg6local(local: &Seg6Local, names: &dyn Names, style: Style) -> String {
    let mut text = format!("encap seg6local action {}", local.action.descriptor().name);
    for attribute in local.attributes() {
        let keyword = attribute.keyword();
        let value = match attribute {
            Attribute::Srh => {
                let segs = segments_text(&local.segments, local.action == Behavior::EndB6, style);
                let lead = if style == Style::Add { "srh " } else { "" };
                let _ = write!(text, " {lead}{segs}");
                continue;
            }
            Attribute::Count => {
                // `ip route show` prints the kernel's counters only with -s.
                text.push_str(if style == Style::Add { " count" } else { "" });
                continue;
            }
            Attribute::Table => local.table.map(|table| value::table_text(table, names)),
            Attribute::Vrftable => local.vrftable.map(|table| value::table_text(table, names)),
            Attribute::Nh4 => local.nh4.map(|address| address.to_string()),
            Attribute::Nh6 => local.nh6.map(|address| address.to_string()),
            Attribute::Iif => local.iif.map(|dev| value::interface_text(dev, names)),
            Attribute::Oif => local.oif.map(|dev| value::interface_text(dev, names)),
            Attribute::L2dev => local.l2dev.map(|dev| value::interface_text(dev, names)),
            Attribute::Vlantable => local.vlantable.map(|table| table.0.to_string()),
            Attribute::Flavors => Some(flavors_text(local.flavors)),
            _ => proxy::value_text(attribute, &local.proxy),
        };
        let _ = write!(text, " {keyword}");
        if let Some(value) = value {
            let _ = write!(text, " {value}");
        }
    }
    text
}

fn flavors_text(flavors: Flavors) -> String {
    let mut text = join(flavors.iter().map(Flavor::word), ",");
    if let Some((block, function)) = flavors.next_csid.or(flavors.replace_csid) {
        let _ = write!(text, " lblen {block} nflen {function}");
    }
    text
}

/// Prints a segment list as [`parse_list`] reads it.
pub fn print_list(segments: &[Ipv6Addr]) -> String {
    let words: Vec<_> = segments.iter().map(ToString::to_string).collect();
    words.join(",")
}

fn segments_text(segments: &[Ipv6Addr], inserted: bool, style: Style) -> String {
    match style {
        Style::Add => format!("segs {}", print_list(segments)),
        Style::Show => {
            let mut words: Vec<_> = segments.iter().map(ToString::to_string).collect();
            words.extend(inserted.then(|| Ipv6Addr::UNSPECIFIED.to_string()));
            format!("segs {} [ {} ]", words.len(), words.join(" "))
        }
    }
}

//! Decodes policy rules from `RTM_NEWRULE` and `RTM_DELRULE`.

use sidestep_model::node::{Node, TableId};
use sidestep_model::route::{Family, Owner, Rule, RuleAction};

use crate::wire::{Attribute, Message, attributes_after, prefix};

/// Length of `struct fib_rule_hdr`.
pub(crate) const FIB_RULE_HDR: usize = 12;

/// Returns the rule in `message`. An `l3mdev` rule has table 0, because its table depends on the
/// interface.
pub(crate) fn decode(message: &Message<'_>) -> Option<Rule> {
    let fixed = message.body.first_chunk::<FIB_RULE_HDR>()?;
    let [
        family_number,
        dst_len,
        src_len,
        tos,
        table,
        _,
        _,
        action,
        flags @ ..,
    ] = *fixed;
    let family = match i32::from(family_number) {
        libc::AF_INET => Family::V4,
        libc::AF_INET6 => Family::V6,
        _ => return None,
    };
    let mut table = u32::from(table);
    let (mut to, mut from) = (None, None);
    let mut rule = Rule {
        family,
        priority: 0,
        invert: u32::from_ne_bytes(flags) & FIB_RULE_INVERT != 0,
        iif: None,
        oif: None,
        from: None,
        to: None,
        l3mdev: false,
        suppress_prefixlength: None,
        action: RuleAction::Other,
        unsupported: Vec::new(),
        owner: Owner::Kernel,
    };
    if tos != 0 {
        rule.unsupported.push(format!("tos {tos:#x}"));
    }
    for attribute in attributes_after(message.body, FIB_RULE_HDR) {
        match attribute.kind {
            FRA_DST => to = attribute.address(),
            FRA_SRC => from = attribute.address(),
            FRA_IIFNAME => rule.iif = Some(attribute.text()),
            FRA_OIFNAME => rule.oif = Some(attribute.text()),
            FRA_PRIORITY => rule.priority = attribute.u32()?,
            FRA_TABLE => table = attribute.u32()?,
            FRA_L3MDEV => rule.l3mdev = attribute.u8()? != 0,
            // Ignore the program that added the rule, and padding.
            FRA_PROTOCOL | FRA_PAD => {}
            // -1: nothing is suppressed.
            FRA_SUPPRESS_PREFIXLEN => {
                rule.suppress_prefixlength = attribute.u32().filter(|bits| *bits != u32::MAX);
            }
            FRA_SUPPRESS_IFGROUP if attribute.u32() == Some(u32::MAX) => {}
            _ => rule.unsupported.push(unsupported(&attribute)),
        }
    }
    if dst_len > 0 {
        rule.to = Some(prefix(family_number, to, dst_len)?);
    }
    if src_len > 0 {
        rule.from = Some(prefix(family_number, from, src_len)?);
    }
    rule.action = match action {
        FR_ACT_TO_TBL => RuleAction::Table(TableId(table)),
        FR_ACT_BLACKHOLE => RuleAction::Blackhole,
        FR_ACT_UNREACHABLE => RuleAction::Unreachable,
        FR_ACT_PROHIBIT => RuleAction::Prohibit,
        _ => RuleAction::Other,
    };
    Some(rule)
}

/// Adds a rule after the other rules of its priority.
pub(crate) fn add(node: &mut Node, rule: Rule) {
    node.rules
        .entry((rule.family, rule.priority))
        .or_default()
        .push(rule);
}

/// Removes the first rule that equals the deleted one.
pub(crate) fn delete(node: &mut Node, rule: &Rule) {
    let key = (rule.family, rule.priority);
    if let Some(rules) = node.rules.get_mut(&key) {
        if let Some(place) = rules.iter().position(|known| known == rule) {
            rules.remove(place);
        }
        if rules.is_empty() {
            node.rules.remove(&key);
        }
    }
}

/// Describes a selector that the model lacks by its name and value, so that different rules remain
/// distinct.
fn unsupported(attribute: &Attribute<'_>) -> String {
    let name = UNSUPPORTED
        .iter()
        .find(|(kind, _)| *kind == attribute.kind)
        .map_or_else(
            || format!("attribute {}", attribute.kind),
            |(_, name)| (*name).to_owned(),
        );
    let value: Vec<String> = match (attribute.u32(), attribute.value) {
        (Some(number), [_, _, _, _]) => vec![number.to_string()],
        (_, bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    format!("{name} {}", value.concat())
}

// include/uapi/linux/fib_rules.h.
const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_PRIORITY: u16 = 6;
const FRA_SUPPRESS_IFGROUP: u16 = 13;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_OIFNAME: u16 = 17;
const FRA_PAD: u16 = 18;
const FRA_L3MDEV: u16 = 19;
const FRA_PROTOCOL: u16 = 21;
const UNSUPPORTED: [(u16, &str); 13] = [
    (4, "goto"),
    (10, "fwmark"),
    (11, "realms"),
    (12, "tun_id"),
    (FRA_SUPPRESS_IFGROUP, "suppress_ifgroup"),
    (16, "fwmask"),
    (20, "uidrange"),
    (22, "ipproto"),
    (23, "sport"),
    (24, "dport"),
    (25, "dscp"),
    (26, "flowlabel"),
    (27, "flowlabel mask"),
];
const FIB_RULE_INVERT: u32 = 2;
const FR_ACT_TO_TBL: u8 = 1;
const FR_ACT_BLACKHOLE: u8 = 6;
const FR_ACT_UNREACHABLE: u8 = 7;
const FR_ACT_PROHIBIT: u8 = 8;

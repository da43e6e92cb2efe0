//! Decodes policy rules from `RTM_NEWRULE` and `RTM_DELRULE`.

use std::collections::BTreeMap;

use sidestep_model::node::{IfIndex, TableId};
use sidestep_model::route::{Family, Owner, Rule, RuleAction};

use crate::link::LinkState;
use crate::wire::{Attribute, Message, attributes_after, prefix};

/// Length of `struct fib_rule_hdr`.
pub(crate) const FIB_RULE_HDR: usize = 12;

/// A rule as the kernel reports it.
#[derive(Clone, Debug)]
pub(crate) struct ReportedRule {
    pub rule: Rule,
    /// The interface of `iif` exists (`FIB_RULE_IIF_DETACHED` is not set).
    has_iif: bool,
    /// The interface of `oif` exists.
    has_oif: bool,
}

/// Returns the rule in `message`. An `l3mdev` rule has table 0, because its table depends on the
/// interface.
pub(crate) fn decode(message: &Message<'_>) -> Option<ReportedRule> {
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
    let flags = u32::from_ne_bytes(flags);
    let mut table = u32::from(table);
    let (mut to, mut from) = (None, None);
    let mut rule = Rule {
        family,
        priority: 0,
        invert: flags & FIB_RULE_INVERT != 0,
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
    Some(ReportedRule {
        rule,
        has_iif: flags & FIB_RULE_IIF_DETACHED == 0,
        has_oif: flags & FIB_RULE_OIF_DETACHED == 0,
    })
}

/// The kernel's policy rules.
///
/// A rule refers to interfaces by name. The kernel looks the name up when the rule is added, also
/// among the other names of interfaces (`altname`). Later it compares it with new and renamed
/// interfaces, but not with their other names (`attach_rules` in `net/core/fib_rules.c`).
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// The rules per family, in order of priority and then of insertion.
    by_priority: BTreeMap<(Family, u32), Vec<BoundRule>>,
}

/// A rule with the interfaces that it refers to by another name.
#[derive(Debug)]
struct BoundRule {
    rule: Rule,
    iif: Option<IfIndex>,
    oif: Option<IfIndex>,
}

impl Rules {
    /// Adds a rule after the other rules of its priority.
    pub fn add(&mut self, reported: ReportedRule, links: &BTreeMap<IfIndex, LinkState>) {
        let ReportedRule {
            rule,
            has_iif,
            has_oif,
        } = reported;
        let bind = |name: &Option<String>| {
            let name = name.as_ref()?;
            let link = links.values().find(|link| link.alt_names.contains(name));
            link.map(|link| link.ifindex)
        };
        let bound = BoundRule {
            iif: bind(&rule.iif).filter(|_| has_iif),
            oif: bind(&rule.oif).filter(|_| has_oif),
            rule,
        };
        let key = (bound.rule.family, bound.rule.priority);
        self.by_priority.entry(key).or_default().push(bound);
    }

    /// Removes the first rule that equals the deleted one.
    pub fn delete(&mut self, rule: &Rule) {
        let key = (rule.family, rule.priority);
        if let Some(rules) = self.by_priority.get_mut(&key) {
            if let Some(place) = rules.iter().position(|known| known.rule == *rule) {
                rules.remove(place);
            }
            if rules.is_empty() {
                self.by_priority.remove(&key);
            }
        }
    }

    /// Removes all rules.
    pub fn clear(&mut self) {
        self.by_priority.clear();
    }

    /// Whether a rule refers to the link by another name than its own.
    pub fn refer_otherwise(&self, ifindex: IfIndex) -> bool {
        let mut rules = self.by_priority.values().flatten();
        rules.any(|bound| [bound.iif, bound.oif].contains(&Some(ifindex)))
    }

    /// Returns the rules with the links' own names.
    pub fn named(
        &self,
        links: &BTreeMap<IfIndex, LinkState>,
    ) -> BTreeMap<(Family, u32), Vec<Rule>> {
        let name = |bound: Option<IfIndex>, said: &Option<String>| {
            let link = bound.and_then(|ifindex| links.get(&ifindex));
            link.map(|link| link.name.clone()).or_else(|| said.clone())
        };
        let named = |bound: &BoundRule| Rule {
            iif: name(bound.iif, &bound.rule.iif),
            oif: name(bound.oif, &bound.rule.oif),
            ..bound.rule.clone()
        };
        let rules = self.by_priority.iter();
        rules
            .map(|(key, rules)| (*key, rules.iter().map(named).collect()))
            .collect()
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
const FIB_RULE_INVERT: u32 = 0x2;
const FIB_RULE_IIF_DETACHED: u32 = 0x8;
const FIB_RULE_OIF_DETACHED: u32 = 0x10;
const FR_ACT_TO_TBL: u8 = 1;
const FR_ACT_BLACKHOLE: u8 = 6;
const FR_ACT_UNREACHABLE: u8 = 7;
const FR_ACT_PROHIBIT: u8 = 8;

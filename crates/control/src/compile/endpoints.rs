//! SIDs as records: behaviors with flavors, and views of tables.

use std::sync::Arc;

use sidestep_datapath::abi::{
    DROP_service_down, DROP_vlan_miss, SIDESTEP_ROUTE_DROP, SIDESTEP_ROUTE_END,
    SIDESTEP_ROUTE_END_B6_ENCAPS, SIDESTEP_ROUTE_END_B6_INSERT, SIDESTEP_ROUTE_END_DT2M,
    SIDESTEP_ROUTE_END_DT2U, SIDESTEP_ROUTE_END_DT4, SIDESTEP_ROUTE_END_DT6,
    SIDESTEP_ROUTE_END_DT46, SIDESTEP_ROUTE_END_DX2, SIDESTEP_ROUTE_END_DX2V,
    SIDESTEP_ROUTE_END_DX4, SIDESTEP_ROUTE_END_DX6, SIDESTEP_ROUTE_END_T, SIDESTEP_ROUTE_END_X,
    SIDESTEP_ROUTE_FORWARD, SIDESTEP_ROUTE_NEXT_CSID, SIDESTEP_ROUTE_PSP,
    SIDESTEP_ROUTE_REPLACE_CSID, SIDESTEP_ROUTE_REQUIRE_HMAC, SIDESTEP_ROUTE_SIDESTEP_ONLY,
    SIDESTEP_ROUTE_USD, SIDESTEP_ROUTE_USP, SIDESTEP_TAG_POP, SIDESTEP_TAG_PUSH, SIDESTEP_TAG_SET,
    SIDESTEP_VLAN_KEY_PRESENT, sidestep_action, sidestep_route,
};
use sidestep_datapath::{FibKey, ViewId};
use sidestep_model::behavior::proxy::OnDown;
use sidestep_model::behavior::{Behavior, EncapMode, Flavors, Seg6Encap, Seg6Local};
use sidestep_model::ether::{Attachment, TagRewrite};
use sidestep_model::node::IfIndex;
use sidestep_model::route::{Family, NextHop, RouteKey};
use sidestep_model::vlan::{Vids, VlanTableId};

use super::chain::Chain;
use super::error::{Skip, unsupported};
use super::group::ResolvedHop;
use super::headend::Headend;
use super::keys::{Via, ViewKey};
use super::record::record;
use super::routes::RouteCompiler;
use super::rules::{self, Source};
use super::tables::Prefix;

impl RouteCompiler<'_> {
    /// Returns the record of a SID.
    pub(super) fn endpoint(
        &mut self,
        sid: &RouteKey,
        next_hop: &NextHop,
        local: &Seg6Local,
    ) -> Result<sidestep_route, Skip> {
        // The return path stays in place while the service is down.
        let out = self.behavior(sid, next_hop, local);
        if let Ok(out) = &out
            && local.action.is_proxy()
        {
            self.set_proxy_info(*sid, local, out);
        }
        let Some(on_down) = self.node.on_down(local) else {
            return Ok(with_hmac(with_flavors(out?, local.flavors), local));
        };
        Ok(match on_down {
            OnDown::Bypass => with_hmac(record(SIDESTEP_ROUTE_END), local),
            OnDown::Drop => sidestep_route {
                reason: DROP_service_down as u8,
                ..record(SIDESTEP_ROUTE_DROP)
            },
        })
    }

    fn behavior(
        &mut self,
        sid: &RouteKey,
        next_hop: &NextHop,
        local: &Seg6Local,
    ) -> Result<sidestep_route, Skip> {
        Ok(match local.action {
            Behavior::End => record(SIDESTEP_ROUTE_END),
            Behavior::EndX => {
                let Some(nh6) = local.nh6 else {
                    return unsupported("End.X without nh6");
                };
                let hop = match local.oif {
                    Some(oif) => ResolvedHop::Adjacency(self.store.adjacency(
                        oif,
                        Via::Address(nh6.into()),
                        None,
                    )?),
                    None => self.cross_connect(next_hop, nh6.into())?,
                };
                hop.of(record(SIDESTEP_ROUTE_END_X))
            }
            Behavior::EndT => sidestep_route {
                view6: self.endpoint_view(local, Family::V6)?,
                // With USD it may decapsulate IPv4.
                view4: if local.flavors.usd {
                    self.endpoint_view(local, Family::V4)?
                } else {
                    ViewId::NONE
                },
                ..record(SIDESTEP_ROUTE_END_T)
            },
            Behavior::EndDx2 => self.ethernet(SIDESTEP_ROUTE_END_DX2, local.oif)?,
            Behavior::EndDt2u => self.bridged(SIDESTEP_ROUTE_END_DT2U, local)?,
            Behavior::EndDt2m => self.bridged(SIDESTEP_ROUTE_END_DT2M, local)?,
            Behavior::EndDx2v => {
                let Some(table) = local.vlantable else {
                    return unsupported("End.DX2V without vlantable");
                };
                sidestep_route {
                    view6: self.vlan_view(table)?,
                    ..record(SIDESTEP_ROUTE_END_DX2V)
                }
            }
            Behavior::EndDx6 => match local.nh6 {
                Some(nh6) if !nh6.is_unspecified() => self
                    .cross_connect(next_hop, nh6.into())?
                    .of(record(SIDESTEP_ROUTE_END_DX6)),
                _ => record(SIDESTEP_ROUTE_END_DX6),
            },
            Behavior::EndDx4 => match local.nh4 {
                Some(nh4) if !nh4.is_unspecified() => self
                    .cross_connect(next_hop, nh4.into())?
                    .of(record(SIDESTEP_ROUTE_END_DX4)),
                _ => record(SIDESTEP_ROUTE_END_DX4),
            },
            Behavior::EndDt4 => sidestep_route {
                view4: self.endpoint_view(local, Family::V4)?,
                ..record(SIDESTEP_ROUTE_END_DT4)
            },
            Behavior::EndDt6 => sidestep_route {
                view6: self.endpoint_view(local, Family::V6)?,
                ..record(SIDESTEP_ROUTE_END_DT6)
            },
            Behavior::EndDt46 => sidestep_route {
                view4: self.endpoint_view(local, Family::V4)?,
                view6: self.endpoint_view(local, Family::V6)?,
                ..record(SIDESTEP_ROUTE_END_DT46)
            },
            Behavior::EndB6 => self.bound(
                sid,
                local,
                next_hop,
                EncapMode::Inline,
                SIDESTEP_ROUTE_END_B6_INSERT,
            )?,
            Behavior::EndB6Encaps => self.bound(
                sid,
                local,
                next_hop,
                EncapMode::Encap,
                SIDESTEP_ROUTE_END_B6_ENCAPS,
            )?,
            Behavior::EndB6EncapsRed => self.bound(
                sid,
                local,
                next_hop,
                EncapMode::EncapRed,
                SIDESTEP_ROUTE_END_B6_ENCAPS,
            )?,
            Behavior::EndAs => self.static_proxy(sid, local, next_hop)?,
            Behavior::EndAd => self.dynamic_proxy(local, *sid)?,
            Behavior::EndAm => self.masquerading(local)?,
        })
    }

    /// Returns the record of End.DT2U or End.DT2M.
    fn bridged(
        &mut self,
        action: sidestep_action,
        local: &Seg6Local,
    ) -> Result<sidestep_route, Skip> {
        if !local.l2dev.is_some_and(|dev| self.node.is_ether(dev)) {
            return unsupported("its l2dev is no ether device");
        }
        self.ethernet(action, local.l2dev)
    }

    /// Returns the record of a SID that sends frames to a device. Linux would send them out of an
    /// ether device, and so back into its segment list.
    fn ethernet(
        &mut self,
        action: sidestep_action,
        dev: Option<IfIndex>,
    ) -> Result<sidestep_route, Skip> {
        let Some(dev) = dev else {
            return unsupported("no device");
        };
        let way = self.node.way_into(dev);
        let flags = if self.node.is_ether(dev) {
            SIDESTEP_ROUTE_SIDESTEP_ONLY
        } else {
            0
        };
        Ok(sidestep_route {
            flags: flags as u8,
            adjacency: self.store.adjacency(way, Via::Link, None)?,
            tag: self.node.attachment(dev).map_or(0, tag_from_far_end),
            ..record(action)
        })
    }

    /// Returns the view of a VLAN table. Its prefixes are VLAN IDs in the key format of
    /// `datapath/behavior/end_dx2v.h`.
    fn vlan_view(&mut self, table: VlanTableId) -> Result<ViewId, Skip> {
        let view = self.store.indices.views.index_of(&ViewKey::Vlans(table))?;
        if self.store.out.index.vlan_views.contains_key(&view) {
            return Ok(view);
        }
        self.store.set_vlan_view(view, Some(table));
        // An incomplete table would send frames out of the wrong interface.
        self.fill_vlan_view(view, table).inspect_err(|_| {
            self.store.clear_view(view);
            self.store.set_vlan_view(view, None);
        })?;
        Ok(view)
    }

    fn fill_vlan_view(&mut self, view: ViewId, table: VlanTableId) -> Result<(), Skip> {
        let node = self.node;
        for (key, &dev) in node.vlans.iter().filter(|(key, _)| key.table == table) {
            // Ignore entries whose interface does not exist.
            let tag = node.attachment(dev).map_or(0, tag_from_far_end);
            let dev = node.way_into(dev);
            if !node.links.contains_key(&dev) {
                continue;
            }
            let adjacency = self.store.adjacency(dev, Via::Link, None)?;
            let route = self.store.unowned(sidestep_route {
                adjacency,
                tag,
                ..record(SIDESTEP_ROUTE_FORWARD)
            })?;
            self.store.insert(view, of_vlans(key.vids), route);
        }
        let miss = self.store.unowned(sidestep_route {
            reason: DROP_vlan_miss as u8,
            ..record(SIDESTEP_ROUTE_DROP)
        })?;
        let all = FibKey {
            view,
            address: [0; 16],
            length: 0,
        };
        self.store.put_prefix(all, Some(miss));
        Ok(())
    }

    /// Returns the record of a binding SID with the policy of its `srh segs`.
    fn bound(
        &mut self,
        sid: &RouteKey,
        local: &Seg6Local,
        next_hop: &NextHop,
        mode: EncapMode,
        action: sidestep_action,
    ) -> Result<sidestep_route, Skip> {
        let encap = Seg6Encap {
            mode,
            segments: local.segments.clone(),
            hmac: None,
            tunsrc: None,
            lookup: None,
        };
        let steered = self.headend(Headend {
            table: sid.table,
            family: Family::V6,
            next_hop,
            encap: &encap,
            alone: None,
            guard: None,
        })?;
        Ok(sidestep_route {
            action: action as u8,
            ..steered
        })
    }

    /// Returns the view of a SID's `table`, or of the VRF with its `vrftable`.
    fn endpoint_view(&mut self, local: &Seg6Local, family: Family) -> Result<ViewId, Skip> {
        let chains = match (local.table, local.vrftable) {
            (Some(table), _) => Arc::new(rules::of_table(self.node, family, table).into()),
            (None, Some(table)) => {
                match self
                    .resolver
                    .chains(self.node, family, Source::vrf(self.node, table))
                {
                    Ok(chains) if chains.ask(table) => chains,
                    Ok(_) => Arc::new(Chain::table(family, table).into()),
                    Err(why) => return unsupported(why),
                }
            }
            (None, None) => return unsupported("no table"),
        };
        Ok(self.views.view_of(&mut self.store, &chains)?)
    }
}

/// Returns the prefix of VLAN IDs in a VLAN table (`vlan_key` of `datapath/read/vlan.h`).
pub(super) fn of_vlans(vids: Vids) -> Prefix {
    let id = |vid: u16| (vid | SIDESTEP_VLAN_KEY_PRESENT as u16).to_be_bytes();
    let (ids, length) = match vids {
        Vids::Untagged => ([[0; 2]; 2], 16),
        Vids::Outer(outer) => ([id(outer), [0; 2]], 16),
        Vids::OuterInner(outer, inner) => ([id(outer), id(inner)], 32),
    };
    let mut address = [0; 16];
    address[..4].copy_from_slice(ids.as_flattened());
    Prefix { address, length }
}

/// Returns the change of the outermost tag (`SIDESTEP_TAG_*`) of frames of an attachment.
pub(super) fn tag_toward_far_end(attachment: &Attachment) -> u16 {
    match attachment.rewrite {
        None => 0,
        Some(TagRewrite::Pop) => SIDESTEP_TAG_POP as u16,
        Some(TagRewrite::Push(vid)) => SIDESTEP_TAG_PUSH as u16 | vid,
        Some(TagRewrite::Translate(vid)) => SIDESTEP_TAG_SET as u16 | vid,
    }
}

/// Returns the opposite of [`tag_toward_far_end`].
fn tag_from_far_end(attachment: &Attachment) -> u16 {
    let change = match attachment.rewrite {
        None => return 0,
        Some(TagRewrite::Pop) => SIDESTEP_TAG_PUSH,
        Some(TagRewrite::Push(_)) => return SIDESTEP_TAG_POP as u16,
        Some(TagRewrite::Translate(_)) => SIDESTEP_TAG_SET,
    };
    change as u16 | attachment.outer().unwrap_or_default()
}

fn with_hmac(mut out: sidestep_route, local: &Seg6Local) -> sidestep_route {
    if local.require_hmac {
        out.flags |= SIDESTEP_ROUTE_REQUIRE_HMAC as u8;
    }
    out
}

fn with_flavors(mut out: sidestep_route, flavors: Flavors) -> sidestep_route {
    let flags = [
        (flavors.psp, SIDESTEP_ROUTE_PSP),
        (flavors.usp, SIDESTEP_ROUTE_USP),
        (flavors.usd, SIDESTEP_ROUTE_USD),
        (flavors.next_csid.is_some(), SIDESTEP_ROUTE_NEXT_CSID),
        (flavors.replace_csid.is_some(), SIDESTEP_ROUTE_REPLACE_CSID),
    ];
    out.flags |= flags
        .iter()
        .filter(|(on, _)| *on)
        .map(|(_, flag)| *flag as u8)
        .sum::<u8>();
    if let Some((block, function)) = flavors.next_csid.or(flavors.replace_csid) {
        (out.block_bits, out.function_bits) = (block, function);
    }
    out
}

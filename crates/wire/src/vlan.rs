//! VLAN tag, IEEE 802.1Q-2022 9.6. The tag protocol is the `EtherType` in front of it.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! | PCP |D|        VLAN ID        |           EtherType           |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```

use crate::{EtherType, u16_at};

header! {
    /// A received VLAN tag.
    view VlanView, |_| Some(Vlan::LENGTH);
    /// A VLAN tag to emit.
    #[derive(Copy)]
    owned Vlan;

    /// Priority code point, 3 bits.
    priority: u8 = |tag| tag[0] >> 5;
    /// Drop eligible indicator.
    drop_eligible: bool = |tag| tag[0] & 0x10 != 0;
    /// VLAN ID, 12 bits.
    id: u16 = |tag| u16_at(tag, 0) & 0xfff;
    /// Type of the payload.
    ethertype: EtherType = |tag| EtherType(u16_at(tag, 2));
}

impl Vlan {
    /// Bytes of the tag.
    pub const LENGTH: usize = 4;

    /// The tag with this payload.
    pub fn emit(&self, payload: &[u8]) -> Vec<u8> {
        let tag = u16::from(self.priority) << 13 | u16::from(self.drop_eligible) << 12;
        let tag = tag | self.id & 0xfff;
        [
            &tag.to_be_bytes()[..],
            &self.ethertype.0.to_be_bytes(),
            payload,
        ]
        .concat()
    }
}

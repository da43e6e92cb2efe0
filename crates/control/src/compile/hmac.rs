//! HMAC keys (RFC 8754 2.1.2): a view of key IDs, and each secret hashed as far as that is possible
//! without a packet. An encapsulation is signed here, once, because its text does not depend on the
//! packet.

use std::net::Ipv6Addr;

use sidestep_datapath::abi::{
    PUNT_hmac, SIDESTEP_HMAC_SEGMENTS_MAX, SIDESTEP_HMAC_SHA1, SIDESTEP_HMAC_SHA256,
    SIDESTEP_ROUTE_HMAC_KEY, sidestep_hmac_key, sidestep_route,
};
use sidestep_datapath::{FibKey, KeySlot, ViewId};
use sidestep_model::hmac::{HmacAlgorithm, HmacKey};
use sidestep_wire::{Hmac, Tlv};

use super::error::{CompileError, Skip};
use super::keys::ViewKey;
use super::record::record;
use super::routes::RouteCompiler;

const BLOCK: usize = 64;
/// Maximum number of segments in a signed list; Linux has the same limit.
pub(super) const SEGMENTS_MAX: usize = SIDESTEP_HMAC_SEGMENTS_MAX as usize;
// The grammar rejects policies with longer signed lists.
const _: () = assert!(SEGMENTS_MAX == sidestep_model::behavior::SIGNED_MAX);
/// Length of the HMAC TLV and of its HMAC field, in bytes.
const TLV: usize = 40;
const FIELD: usize = 32;

/// FIPS 180-4 5.3: initial hash value.
const SHA1_FIRST: [u32; 5] = [
    0x6745_2301,
    0xefcd_ab89,
    0x98ba_dcfe,
    0x1032_5476,
    0xc3d2_e1f0,
];
const SHA256_FIRST: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// Updates a hash value with blocks. SHA-1 uses five words.
fn compress(algorithm: HmacAlgorithm, state: &mut [u32; 8], blocks: &[[u8; BLOCK]]) {
    match algorithm {
        HmacAlgorithm::Sha1 => {
            let mut five = [0; 5];
            five.copy_from_slice(&state[..5]);
            sha1::block_api::compress(&mut five, blocks);
            state[..5].copy_from_slice(&five);
        }
        HmacAlgorithm::Sha256 => sha2::block_api::compress256(state, blocks),
    }
}

/// The record of a key: RFC 2104 4, the hash values behind the key with ipad and with opad.
pub(crate) fn key(id: u32, key: &HmacKey) -> sidestep_hmac_key {
    let behind = |pad: u8| {
        let mut state = [0; 8];
        match key.algorithm {
            HmacAlgorithm::Sha1 => state[..5].copy_from_slice(&SHA1_FIRST),
            HmacAlgorithm::Sha256 => state = SHA256_FIRST,
        }
        // A secret is never longer than a block.
        let mut block = [pad; BLOCK];
        for (to, byte) in block.iter_mut().zip(key.secret.expose()) {
            *to ^= byte;
        }
        compress(key.algorithm, &mut state, &[block]);
        state
    };
    let algorithm = match key.algorithm {
        HmacAlgorithm::Sha1 => SIDESTEP_HMAC_SHA1,
        HmacAlgorithm::Sha256 => SIDESTEP_HMAC_SHA256,
    };
    let (inner, outer) = (behind(0x36), behind(0x5c));
    sidestep_hmac_key {
        id,
        algorithm,
        generation: generation(id, algorithm, &inner),
        inner,
        outer,
    }
}

/// Returns a number that identifies the key without revealing it.
fn generation(id: u32, algorithm: u32, inner: &[u32; 8]) -> u64 {
    let mut block = [0; BLOCK];
    let words = [id, algorithm].into_iter().chain(*inner);
    for (to, word) in block.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_be_bytes());
    }
    let mut state = SHA256_FIRST;
    compress(HmacAlgorithm::Sha256, &mut state, &[block]);
    // 0 means no key.
    (u64::from(state[0]) << 32 | u64::from(state[1])).max(1)
}

/// Returns the HMAC of a text in the format of the TLV.
fn mac(key: &sidestep_hmac_key, text: &[u8]) -> [u8; FIELD] {
    let (algorithm, bytes) = match key.algorithm {
        SIDESTEP_HMAC_SHA1 => (HmacAlgorithm::Sha1, 20),
        _ => (HmacAlgorithm::Sha256, 32),
    };
    let hash = |mut state: [u32; 8], text: &[u8]| {
        let bits = (BLOCK + text.len()) as u64 * 8;
        let mut padded = [text, &[0x80]].concat();
        padded.resize((text.len() + 9).next_multiple_of(BLOCK) - 8, 0);
        padded.extend(bits.to_be_bytes());
        compress(algorithm, &mut state, padded.as_chunks().0);
        let mut field = [0; FIELD];
        for (to, word) in field.chunks_exact_mut(4).zip(state) {
            to.copy_from_slice(&word.to_be_bytes());
        }
        field[bytes..].fill(0);
        field
    };
    let inner = hash(key.inner, text);
    hash(key.outer, &inner[..bytes])
}

/// Returns the HMAC TLV of this key with a zero HMAC.
pub(super) fn tlv(key: &sidestep_hmac_key) -> Tlv {
    Tlv::Hmac(Hmac {
        flags: 0,
        key_id: key.id,
        hmac: vec![0; FIELD],
    })
}

/// Signs an SRH that ends with the HMAC TLV of this key. The text is source address, Last Entry,
/// Flags, key ID and Segment List (`net/ipv6/seg6_hmac.c`).
pub fn sign(srh: &mut [u8], key: &sidestep_hmac_key, source: Ipv6Addr) {
    let list = srh.len() - TLV;
    let text = [
        &source.octets(),
        &srh[4..6],
        &key.id.to_be_bytes(),
        &srh[8..list],
    ]
    .concat();
    let field = srh.len() - FIELD;
    srh[field..].copy_from_slice(&mac(key, &text));
}

impl RouteCompiler<'_> {
    /// Returns the view of key IDs, or `NONE` without keys. Keys that do not fit are punted.
    pub(super) fn hmac_view(&mut self) -> Result<ViewId, CompileError> {
        let node = self.node;
        if node.hmac_keys.is_empty() {
            return Ok(ViewId::NONE);
        }
        let view = self.store.indices.views.index_of(&ViewKey::HmacKeys)?;
        for (&id, content) in &node.hmac_keys {
            let content = key(id, content);
            let Ok(slot) = self.store.indices.hmac_keys.index_of(&content) else {
                let rest = self.store.punt(PUNT_hmac)?;
                self.store.put_prefix(of_number(view, 0, 0), Some(rest));
                break;
            };
            self.store.put_hmac_key(slot, &content);
            let route = self.store.unowned(sidestep_route {
                policy: slot.0,
                ..record(SIDESTEP_ROUTE_HMAC_KEY)
            })?;
            self.store.put_prefix(of_number(view, id, 32), Some(route));
            self.hmac_keys.insert(id, slot);
        }
        Ok(view)
    }

    /// Returns the key that a route signs with. If it does not exist, or the Segment List is too
    /// long, the route is punted.
    pub(super) fn signer(
        &self,
        id: Option<u32>,
        listed: usize,
    ) -> Result<Option<(KeySlot, sidestep_hmac_key)>, Skip> {
        let because = |text: String| {
            Err(Skip::Unsupported {
                reason: PUNT_hmac,
                text,
            })
        };
        let Some(id) = id else {
            return Ok(None);
        };
        if listed > SEGMENTS_MAX {
            return because(format!(
                "HMAC over {listed} segments; {SEGMENTS_MAX} are possible"
            ));
        }
        let slot = self.hmac_keys.get(&id).copied();
        let content = slot.and_then(|slot| self.store.out.image.hmac_keys.get(&slot));
        match (slot, content) {
            (Some(slot), Some(content)) => Ok(Some((slot, *content))),
            _ => because(format!("there is no HMAC key {id}")),
        }
    }
}

/// Returns the key of a number in a view of numbers, which are the first 4 bytes of an address.
pub(super) fn of_number(view: ViewId, number: u32, length: u8) -> FibKey {
    let mut address = [0; 16];
    address[..4].copy_from_slice(&number.to_be_bytes());
    FibKey {
        view,
        address,
        length,
    }
}

#[cfg(test)]
mod tests {
    use sidestep_model::hmac::Secret;

    use super::*;

    fn made(algorithm: HmacAlgorithm, secret: &[u8]) -> sidestep_hmac_key {
        let secret = Secret::new(secret).expect("short enough");
        key(7, &HmacKey { algorithm, secret })
    }

    fn hex(algorithm: HmacAlgorithm, secret: &[u8], text: &[u8]) -> String {
        hex::encode(mac(&made(algorithm, secret), text))
    }

    #[test]
    fn the_cases_of_rfc_2202_and_rfc_4231_hold() {
        use HmacAlgorithm::{Sha1, Sha256};
        let zeros = "000000000000000000000000";
        assert_eq!(
            hex(Sha1, &[0x0b; 20], b"Hi There"),
            format!("b617318655057264e28bc0b6fb378c8ef146be00{zeros}")
        );
        assert_eq!(
            hex(Sha1, &[0xaa; 20], &[0xdd; 50]),
            format!("125d7342b9ac11cd91a39af48aa17b4f63f175d3{zeros}")
        );
        assert_eq!(
            hex(Sha256, &[0x0b; 20], b"Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
        );
        assert_eq!(
            hex(Sha256, b"Jefe", b"what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    #[test]
    fn every_key_has_its_own_generation_and_stays_secret() {
        let one = made(HmacAlgorithm::Sha1, b"a");
        assert_eq!(one, made(HmacAlgorithm::Sha1, b"a"));
        for other in [
            made(HmacAlgorithm::Sha1, b"b"),
            made(HmacAlgorithm::Sha256, b"a"),
        ] {
            assert_ne!(one.generation, other.generation);
        }
        let shown = format!("{one:?}");
        assert!(!shown.contains(&one.inner[0].to_string()), "{shown}");
    }
}

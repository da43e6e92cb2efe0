//! Settings that Linux does not have: options of `sidestep run` and keys of the node file.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

/// Settings of a node that change verdicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `local_srh`.
    pub local_srh: LocalSrh,
    /// Whether SIDs are processed only on ports with `Link::seg6_enabled`. Linux's seg6local does
    /// not read it.
    pub require_seg6_enabled: bool,
    /// Whether headends without `lookup` look encapsulated packets up in table main, instead of by
    /// the rules of the ingress port.
    pub encap_lookup_main: bool,
    /// `ipv4_too_big`.
    pub ipv4_too_big: Ipv4TooBig,
    /// `redirect_peer`.
    pub redirect_peer: RedirectPeer,
}

/// Defines an enumeration whose words are the same in the node file and on the command line.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$of_word:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name {
            $($(#[$of_word])* $variant,)+
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => $word,)+
                })
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(word: &str) -> Result<Self, String> {
                match word {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(format!("expected {}", [$($word),+].join(" or "))),
                }
            }
        }
    };
}

words! {
    /// Target of the ports.
    Mode {
        /// XDP where all frames arrive with a checksum, otherwise TC.
        #[default]
        Auto = "auto",
        /// XDP in the driver.
        Xdp = "xdp",
        /// XDP in the driver, also on veth and tap: all senders complete checksums.
        XdpAlways = "xdp-always",
        /// TC.
        Tc = "tc",
    }
}

words! {
    /// Treatment of an SRH with Segments Left greater than 0 at a local address that is not a SID.
    LocalSrh {
        /// RFC 8754 4.3.2: drop with an ICMP error.
        #[default]
        Drop = "drop",
        /// Leave the packet to Linux, which forwards it to the next segment.
        Linux = "linux",
    }
}

words! {
    /// Treatment of an IPv4 packet without DF that exceeds the egress MTU.
    Ipv4TooBig {
        /// RFC 2473 7.2(b), RFC 1812 5.2.6: send it in fragments.
        #[default]
        Fragment = "fragment",
        /// Treat it as if DF were set: drop with an ICMP error.
        Icmp = "icmp",
    }
}

words! {
    /// Use of `bpf_redirect_peer` in TC, for egresses whose peer is in another network namespace.
    RedirectPeer {
        /// Where the redirect skips nothing that is in use.
        #[default]
        Auto = "auto",
        /// Always.
        On = "on",
        /// Never.
        Off = "off",
    }
}

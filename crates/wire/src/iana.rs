//! Code points, one type per registry. Every number is a value; the constants name those in use.

/// Declares a registry: a newtype with named constants and `name()`.
macro_rules! registry {
    (
        $(#[$doc:meta])*
        $name:ident($number:ty) { $($(#[$item:meta])* $constant:ident = $value:literal $text:literal)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $number);

        impl $name {
            $($(#[$item])* #[doc = concat!("`", $text, "`")] pub const $constant: Self = Self($value);)*

            /// Short name. `None` for a number without a constant here.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$constant => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

registry! {
    /// IANA "IEEE 802 Numbers", `EtherType` values.
    /// <https://www.iana.org/assignments/ieee-802-numbers>
    EtherType(u16) {
        IPV4 = 0x0800 "IPv4"
        ARP = 0x0806 "ARP"
        VLAN = 0x8100 "802.1Q"
        IPV6 = 0x86dd "IPv6"
        QINQ = 0x88a8 "802.1ad"
        LLDP = 0x88cc "LLDP"
    }
}

registry! {
    /// IANA "Assigned Internet Protocol Numbers", also the values of Next Header.
    /// <https://www.iana.org/assignments/protocol-numbers>
    Protocol(u8) {
        HOP_BY_HOP = 0 "Hop-by-Hop"
        ICMP = 1 "ICMP"
        IGMP = 2 "IGMP"
        IPV4 = 4 "IPv4"
        TCP = 6 "TCP"
        UDP = 17 "UDP"
        IPV6 = 41 "IPv6"
        ROUTING = 43 "Routing"
        FRAGMENT = 44 "Fragment"
        AUTHENTICATION = 51 "Authentication"
        ICMPV6 = 58 "ICMPv6"
        NO_NEXT_HEADER = 59 "none"
        DESTINATION_OPTIONS = 60 "Destination"
        SCTP = 132 "SCTP"
        ETHERNET = 143 "Ethernet"
    }
}

registry! {
    /// IANA "IPv6 Routing Types".
    /// <https://www.iana.org/assignments/ipv6-parameters>
    RoutingType(u8) {
        SRH = 4 "SRH"
    }
}

registry! {
    /// IANA "Segment Routing Header TLVs".
    /// <https://www.iana.org/assignments/ipv6-parameters>
    SrhTlvType(u8) {
        PAD1 = 0 "Pad1"
        PADN = 4 "PadN"
        HMAC = 5 "HMAC"
    }
}

registry! {
    /// IANA "ICMP Type Numbers".
    /// <https://www.iana.org/assignments/icmp-parameters>
    Icmpv4Type(u8) {
        ECHO_REPLY = 0 "echo reply"
        DESTINATION_UNREACHABLE = 3 "destination unreachable"
        ECHO_REQUEST = 8 "echo request"
        TIME_EXCEEDED = 11 "time exceeded"
        TIMESTAMP = 13 "timestamp"
        TIMESTAMP_REPLY = 14 "timestamp reply"
        INFORMATION_REQUEST = 15 "information request"
        INFORMATION_REPLY = 16 "information reply"
        ADDRESS_MASK_REQUEST = 17 "address mask request"
        ADDRESS_MASK_REPLY = 18 "address mask reply"
    }
}

registry! {
    /// IANA "`ICMPv6` 'type' Numbers".
    /// <https://www.iana.org/assignments/icmpv6-parameters>
    Icmpv6Type(u8) {
        DESTINATION_UNREACHABLE = 1 "destination unreachable"
        PACKET_TOO_BIG = 2 "packet too big"
        TIME_EXCEEDED = 3 "time exceeded"
        PARAMETER_PROBLEM = 4 "parameter problem"
        ECHO_REQUEST = 128 "echo request"
        ECHO_REPLY = 129 "echo reply"
        NEIGHBOR_SOLICITATION = 135 "neighbor solicitation"
        NEIGHBOR_ADVERTISEMENT = 136 "neighbor advertisement"
        REDIRECT = 137 "redirect"
    }
}

impl Protocol {
    /// Whether this is an IPv6 extension header that another header follows (RFC 8200 4).
    pub fn is_extension(self) -> bool {
        matches!(
            self,
            Self::HOP_BY_HOP
                | Self::ROUTING
                | Self::FRAGMENT
                | Self::AUTHENTICATION
                | Self::DESTINATION_OPTIONS
        )
    }
}

impl Icmpv6Type {
    /// Whether a message of this type is an error (RFC 4443 2.1).
    pub fn is_error(self) -> bool {
        self.0 < 128
    }
}

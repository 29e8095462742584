//! Addresses of PCI functions, as Linux writes them.

use std::fmt;
use std::str::FromStr;

/// The address of a PCI function of the host: domain, bus, device and function, such as
/// `0000:00:03.0`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

/// The error for text that is not the address of a PCI function.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a PCI address: write DOMAIN:BUS:DEVICE.FUNCTION in hexadecimal digits as \
     `lspci -D` does, for example 0000:00:03.0, or 00:03.0 for domain 0"
)]
pub struct ParseAddressError {
    /// The text that is not a valid address.
    pub text: String,
}

impl Address {
    /// Returns the address of a function on bus `bus` of `domain`. `device_function` is the device
    /// number, shifted left by three bits, plus the function number (`devfn` in Linux).
    pub fn of(domain: u32, bus: u8, device_function: u8) -> Self {
        Self {
            domain,
            bus,
            device: device_function >> 3,
            function: device_function & 7,
        }
    }

    /// Returns the number of the PCI domain, also called segment.
    pub fn domain(self) -> u32 {
        self.domain
    }

    /// Returns the number of the bus in its domain.
    pub fn bus(self) -> u8 {
        self.bus
    }

    /// Returns the number of the device on its bus, 0 to 31.
    pub fn device(self) -> u8 {
        self.device
    }

    /// Returns the number of the function of its device, 0 to 7.
    pub fn function(self) -> u8 {
        self.function
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Address {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, ParseAddressError> {
        parse(text).ok_or_else(|| ParseAddressError {
            text: text.to_owned(),
        })
    }
}

fn parse(text: &str) -> Option<Address> {
    let (rest, function) = text.rsplit_once('.')?;
    let (rest, device) = rest.rsplit_once(':')?;
    let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0000", rest));
    // Domains of host bridges behind a volume management device have five digits.
    let domain = number(domain, 4..=8)?;
    let bus = u8::try_from(number(bus, 2..=2)?).ok()?;
    let device = u8::try_from(number(device, 2..=2)?).ok()?;
    let function = u8::try_from(number(function, 1..=1)?).ok()?;
    (device < 32 && function < 8).then_some(Address {
        domain,
        bus,
        device,
        function,
    })
}

fn number(digits: &str, lengths: std::ops::RangeInclusive<usize>) -> Option<u32> {
    // `from_str_radix` would take a sign.
    let hexadecimal = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    (hexadecimal && lengths.contains(&digits.len()))
        .then(|| u32::from_str_radix(digits, 16).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_and_the_long_one_is_written() {
        for (text, written) in [
            ("0000:00:03.0", "0000:00:03.0"),
            ("00:03.0", "0000:00:03.0"),
            ("0001:Af:1f.7", "0001:af:1f.7"),
            ("10000:e1:00.0", "10000:e1:00.0"),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), written);
        }
        assert_eq!(Address::of(0, 2, 0x1a).to_string(), "0000:02:03.2");
    }

    #[test]
    fn what_is_no_address_is_named_with_the_form_that_is_expected() {
        for text in [
            "",
            "3",
            "03.0",
            "00:03",
            "00:20.0",
            "00:03.8",
            "0:3.0",
            "00:+3.0",
            "000:00:03.0",
            "0000:00:03.00",
            "0000:00:03.0 ",
            "a:0000:00:03.0",
            "00-03.0",
        ] {
            let error = text.parse::<Address>().unwrap_err();
            let message = error.to_string();
            assert!(message.contains(&format!("{text:?}")), "{message}");
            assert!(message.contains("0000:00:03.0"), "{message}");
        }
    }

    #[test]
    fn addresses_are_ordered_as_lists_of_devices_are() {
        let sorted = [
            "0000:00:03.0",
            "0000:00:03.1",
            "0000:01:00.0",
            "0001:00:00.0",
        ];
        let mut addresses: Vec<Address> = sorted.iter().map(|a| a.parse().unwrap()).collect();
        addresses.reverse();
        addresses.sort();
        let written: Vec<_> = addresses.iter().map(Address::to_string).collect();
        assert_eq!(written, sorted);
    }
}

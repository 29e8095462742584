//! Clients: the processes of one guest, as its session tells them apart.

use causeway_protocol::registers::CLIENTS;

/// A client of a session: a process of the guest. Each client has its own page of the device's
/// registers, and the number of that page identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client(u8);

const _: () = assert!(CLIENTS <= u64::BITS, "clients are bits of a word");

impl Client {
    /// The client that uses page 0 of the registers. A guest that is a single program has no other
    /// client.
    pub const FIRST: Self = Self(0);

    /// Returns the client that uses page `number` of the registers; `None` if there is no page of
    /// that number.
    pub const fn new(number: u32) -> Option<Self> {
        if number < CLIENTS {
            Some(Self(number as u8))
        } else {
            None
        }
    }

    /// Returns the number of the register page that the client uses.
    pub const fn number(self) -> u32 {
        self.0 as u32
    }

    /// Returns a word in which only the bit for this client is set. A set of clients is the bitwise
    /// OR of such words.
    pub const fn bit(self) -> u64 {
        1 << self.0
    }

    /// Returns the client's index in an array that has an element for each client.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Iterates over all clients that a session can have.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..CLIENTS as u8).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_the_number_of_its_page() {
        for number in 0..CLIENTS {
            let client = Client::new(number).unwrap();
            assert_eq!((client.number(), client.bit()), (number, 1 << number));
        }
        assert_eq!(Client::new(CLIENTS), None);
        assert_eq!(Client::FIRST.number(), 0);
    }
}

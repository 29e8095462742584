//! The function over a fake hypervisor, moved about by configuration stores.

use causeway_mediator::Client;
use causeway_mediator_testing::FakeSession;
use causeway_memory::{PageSize, SharedMemory};
use causeway_protocol::Access;
use causeway_protocol::message::Status;
use proptest::prelude::*;
use vmm_sys_util::eventfd::EventFd;

use super::*;
use crate::aperture::{Aperture, chunk_bytes};
use crate::bus::{GuestAddress, Refusal};
use crate::device::Doorbells;
use crate::hypervisor::fake::Fake;
use crate::interrupts::fake::FakeChips;
use crate::memory::GuestRam;
use crate::pci::Layout;

const GIB: u64 = 1 << 30;
const APERTURE: u64 = 256 * GIB;

struct Machine {
    function: CausewayFunction,
    bus: Arc<MmioBus>,
    fake: Arc<Fake>,
    host: Arc<GuestHost>,
}

/// Returns a guest of 8 MiB with one page placed in an aperture of 4 GiB, and doorbell 0 bound.
fn machine() -> Machine {
    machine_with(None)
}

/// Returns the same, with or without an interrupt controller.
fn machine_with(wiring: Option<Wiring<'_>>) -> Machine {
    let fake = Arc::new(Fake::default());
    let layout = Layout::new(40, 8 << 20, 4 * GIB).unwrap();
    assert_eq!(layout.aperture, APERTURE);
    let bars = layout.functions().next().unwrap();
    let aperture = Arc::new(Aperture::new(4 * GIB, Arc::clone(&fake) as _).unwrap());
    let doorbells = Arc::new(Doorbells::new(Arc::clone(&fake) as _));
    let ram = Arc::new(GuestRam::new("test", 8 << 20, false).unwrap());
    let host = Arc::new(GuestHost::new(aperture, doorbells, ram));
    let strays = Arc::new(StrayCounters::default());
    let bus = Arc::new(MmioBus::new(Arc::clone(&strays)));
    bus.reserve(GuestAddress(0), 8 << 20, "ram").unwrap();
    let session = FakeSession::new(|_| Status::Ok);
    let function = CausewayFunction::new(
        (bars, layout.address_end),
        Arc::clone(&host),
        session,
        0,
        Arc::clone(&bus),
        strays,
        wiring,
    )
    .unwrap();
    let page = Arc::new(SharedMemory::new("test", 4096, PageSize::Small).unwrap());
    let at = host
        .aperture
        .place(&page.into(), 0, 4096, Access::ReadWrite)
        .unwrap();
    assert_eq!(at, 4 * GIB - 4096);
    let event = EventFd::new(libc::EFD_NONBLOCK).unwrap();
    host.doorbells.bind(0, &event).unwrap();
    Machine {
        function,
        bus,
        fake,
        host,
    }
}

impl Machine {
    fn write(&self, offset: u8, value: u32) {
        self.function.write_config(offset, &value.to_le_bytes());
    }
    fn read(&self, offset: u8) -> u32 {
        let mut bytes = [0; 4];
        self.function.read_config(offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }
    /// Name of the device that has an address.
    fn owner(&self, address: u64) -> &'static str {
        self.bus.read(GuestAddress(address), &mut [0; 4]).device
    }
    fn slot_addresses(&self) -> Vec<u64> {
        self.fake.state().slots.values().map(|s| s.gpa).collect()
    }
    fn doorbell_addresses(&self) -> Vec<u64> {
        self.fake.state().events.keys().copied().collect()
    }
}

/// Returns the guest-physical address of the one standing slot for an aperture at `base`.
fn slot_at(base: u64) -> u64 {
    base + 4 * GIB - chunk_bytes(4 * GIB)
}

#[test]
fn everything_is_decoded_where_firmware_would_put_it() {
    let machine = machine();
    assert_eq!(machine.read(0), 0x0001_ca57);
    assert_eq!(machine.owner(0xe000_0000), "registers");
    assert_eq!(machine.owner(0xe003_f000), "registers");
    assert_eq!(machine.owner(0xe004_0000), "unclaimed");
    assert_eq!(machine.owner(0xe020_0000), "doorbells");
    assert_eq!(machine.owner(APERTURE), "aperture");
    assert_eq!(machine.slot_addresses(), [slot_at(APERTURE)]);
    assert_eq!(machine.doorbell_addresses(), [0xe020_2000]);
}

const DEVICE: u8 = 3;
const COMMAND_INTX_DISABLE: u32 = 1 << 10;
const STATUS_INTERRUPT: u32 = 1 << 19;
/// Message control, in the upper half of its word.
const MSIX_ENABLE: u32 = 1 << 31;
const MSIX_FUNCTION_MASK: u32 = 1 << 30;

#[test]
fn the_pin_follows_pending_interrupts_as_the_command_register_lets_it() {
    let chips = FakeChips::default();
    let controller = &chips.controller();
    let device = DEVICE;
    let machine = machine_with(Some(Wiring { controller, device }));
    let line = pci_line(DEVICE, 1);
    let asserted = || chips.books().asserted.contains(&line);
    assert_eq!(machine.read(0x3c), 1 << 8 | line);
    assert_eq!((machine.read(4) & STATUS_INTERRUPT, asserted()), (0, false));
    let client = Client::new(2).unwrap();
    machine.host.interrupts.raise(client);
    assert_eq!(
        (machine.read(4) & STATUS_INTERRUPT, asserted()),
        (STATUS_INTERRUPT, true)
    );
    // As `uio_pci_generic` masks it, and a process lets it come again.
    let command = u32::from(COMMAND_MEMORY);
    machine.write(4, command | COMMAND_INTX_DISABLE);
    assert_eq!(
        (machine.read(4) & STATUS_INTERRUPT, asserted()),
        (STATUS_INTERRUPT, false)
    );
    machine.write(4, command);
    assert!(asserted());
    machine.host.interrupts.acknowledge(client);
    assert_eq!((machine.read(4) & STATUS_INTERRUPT, asserted()), (0, false));
    machine.host.interrupts.raise(client);
    drop(machine);
    assert!(!asserted(), "the device is gone");
}

#[test]
fn each_client_has_a_vector_and_messages_leave_the_pin_alone() {
    let chips = FakeChips::default();
    let controller = &chips.controller();
    let device = DEVICE;
    let machine = machine_with(Some(Wiring { controller, device }));
    let table = |offset: u64, value: u32| {
        let at = GuestAddress(0xe020_0000 + MSIX_TABLE + offset);
        assert_eq!(machine.bus.write(at, &value.to_le_bytes()).result, Ok(()));
    };
    let pending = || {
        let mut bits = [0; 8];
        let at = GuestAddress(0xe020_0000 + MSIX_PENDING);
        assert_eq!(machine.bus.read(at, &mut bits).result, Ok(()));
        u64::from_le_bytes(bits)
    };
    let client = Client::new(63).unwrap();
    let vector = 16 * u64::from(client.number());
    table(vector, 0xfee0_0000);
    table(vector + 8, 0x51);
    table(vector + 12, 0);
    machine.write(0x40, MSIX_ENABLE | MSIX_FUNCTION_MASK);
    machine.host.interrupts.raise(client);
    assert!(chips.books().asserted.is_empty(), "messages are on");
    assert_eq!(pending(), client.bit());
    machine.write(0x40, MSIX_ENABLE);
    assert_eq!(pending(), 0, "delivered");
    let routed: Vec<u32> = chips.books().messages.values().map(|m| m.data).collect();
    assert_eq!(routed, [0x51]);
    machine.write(0x40, 0);
    assert_eq!(
        chips.books().asserted,
        [pci_line(DEVICE, 1)],
        "the pin again"
    );
}

#[test]
fn a_guest_without_an_interrupt_controller_has_no_pin() {
    let machine = machine();
    machine.host.interrupts.raise(Client::FIRST);
    assert_eq!(machine.read(0x3c), 0);
    assert!(machine.host.interrupts.is_pending(Client::FIRST));
}

#[test]
fn all_three_bars_follow_the_guest() {
    let machine = machine();
    machine.write(0x10, 0xd000_0000);
    machine.write(0x20, 0xd020_0000);
    machine.write(0x1c, 0x50);
    assert_eq!(machine.owner(0xe000_0000), "unclaimed");
    assert_eq!(machine.owner(0xd000_0000), "registers");
    assert_eq!(machine.owner(0xd020_0000), "doorbells");
    assert_eq!(machine.owner(APERTURE), "unclaimed");
    assert_eq!(machine.owner(0x50 << 32), "aperture");
    assert_eq!(machine.slot_addresses(), [slot_at(0x50 << 32)]);
    assert_eq!(machine.doorbell_addresses(), [0xd020_2000]);
    let mut word = [1; 4];
    let hit = machine
        .bus
        .read(GuestAddress((0x50 << 32) + 4 * GIB - 4), &mut word);
    assert_eq!((hit.register, hit.result, word), ("mapped", Ok(()), [0; 4]));
}

#[test]
fn sizing_with_memory_enabled_or_not_ends_where_it_began() {
    for command in [COMMAND_MEMORY, 0] {
        let machine = machine();
        machine.write(4, command.into());
        for offset in [0x10, 0x18, 0x1c, 0x20] {
            let was = machine.read(offset);
            machine.write(offset, u32::MAX);
            machine.write(offset, was);
        }
        machine.write(4, COMMAND_MEMORY.into());
        assert_eq!(machine.owner(0xe000_0000), "registers");
        assert_eq!(machine.owner(0xe020_0000), "doorbells");
        assert_eq!(machine.slot_addresses(), [slot_at(APERTURE)]);
        assert_eq!(machine.doorbell_addresses(), [0xe020_2000]);
    }
}

#[test]
fn without_memory_enable_nothing_is_decoded() {
    let machine = machine();
    machine.write(4, 0);
    for address in [0xe000_0000, 0xe020_0000, APERTURE] {
        assert_eq!(machine.owner(address), "unclaimed");
    }
    assert!(machine.slot_addresses().is_empty());
    assert!(machine.doorbell_addresses().is_empty());
    let page = Arc::new(SharedMemory::new("test", 4096, PageSize::Small).unwrap());
    machine
        .host
        .aperture
        .place(&page.into(), 0, 4096, Access::Read)
        .unwrap();
    machine.write(4, COMMAND_MEMORY.into());
    assert_eq!(machine.slot_addresses(), [slot_at(APERTURE)]);
}

#[test]
fn a_bar_over_ram_over_another_or_beyond_the_address_space_is_not_decoded() {
    let machine = machine();
    machine.write(0x10, 0x1000);
    assert_eq!(machine.owner(0x1000), "unclaimed", "RAM is not the bus's");
    machine.write(0x10, 0xe020_1000);
    assert_eq!(machine.owner(0xe020_1000), "doorbells");
    machine.write(0x10, 0xe000_0000);
    assert_eq!(machine.owner(0xe000_0000), "registers");
    machine.write(0x1c, 0x100);
    assert!(machine.slot_addresses().is_empty(), "beyond 40 bits");
    machine.write(0x1c, 0);
    assert!(machine.slot_addresses().is_empty(), "over RAM");
    machine.write(0x1c, 0x40);
    assert_eq!(machine.slot_addresses(), [slot_at(APERTURE)]);
}

#[test]
fn a_refusal_of_the_hypervisor_leaves_the_bar_undecoded() {
    let machine = machine();
    machine.fake.fail_after(1, libc::ENOMEM);
    machine.write(0x1c, 0x50);
    assert_eq!(machine.owner(0x50 << 32), "unclaimed");
    assert!(machine.slot_addresses().is_empty());
    machine.write(0x1c, 0x50);
    assert_eq!(
        machine.slot_addresses(),
        [slot_at(0x50 << 32)],
        "any later store tries again"
    );
}

#[test]
fn dropping_the_function_leaves_nothing() {
    let machine = machine();
    let Machine {
        function,
        bus,
        fake,
        ..
    } = machine;
    drop(function);
    let hit = bus.read(GuestAddress(0xe000_0000), &mut [0; 4]);
    assert_eq!(hit.result, Err(Refusal::Unclaimed));
    assert!(fake.state().slots.is_empty());
    assert!(fake.state().events.is_empty());
}

/// Stores to configuration space at random: offset, width, data.
fn store() -> impl Strategy<Value = (u8, usize, u32)> {
    let offsets = prop_oneof![
        4 => prop::sample::select(vec![0x04u8, 0x10, 0x18, 0x1c, 0x20]),
        1 => (0u8..64).prop_map(|word| word * 4),
    ];
    let data = prop_oneof![
        any::<u32>(),
        Just(u32::MAX),
        // Addresses that are likely to collide.
        (0u32..16).prop_map(|n| 0xe000_0000 + n * 0x1000),
        (0u32..0x120).prop_map(|n| n),
    ];
    (offsets, prop::sample::select(vec![1usize, 2, 4]), data)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the guest stores: what is decoded is where its BAR says, slots are within the
    /// aperture and never over RAM, and the identity stays.
    #[test]
    fn no_sequence_of_stores_puts_a_bar_where_it_must_not_be(
        stores in prop::collection::vec(store(), 1..40)
    ) {
        let machine = machine();
        for (offset, width, data) in stores {
            machine.function.write_config(offset, &data.to_le_bytes()[..width]);
            let bar = u64::from(machine.read(0x18) & !0xf) | u64::from(machine.read(0x1c)) << 32;
            for gpa in machine.slot_addresses() {
                prop_assert_eq!(gpa, slot_at(bar));
                prop_assert!(gpa >= 8 << 20 && gpa + chunk_bytes(4 * GIB) <= 1 << 40);
            }
            for address in machine.doorbell_addresses() {
                prop_assert_eq!(address, u64::from(machine.read(0x20) & !0xf) + 0x2000);
            }
            prop_assert_eq!(machine.read(0), 0x0001_ca57);
        }
    }
}

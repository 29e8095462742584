use super::fake::FakeChips;
use super::*;

const MESSAGE: MsiMessage = MsiMessage {
    address: 0xfee0_1000,
    data: 0x31,
};

#[test]
fn a_message_is_masked_until_it_has_one() {
    let chips = FakeChips::default();
    let message = chips.controller().message().unwrap();
    assert_eq!(chips.delivers(message.event()), None);
    message.set(Some(MESSAGE)).unwrap();
    assert_eq!(chips.delivers(message.event()), Some(MESSAGE));
    let moved = MsiMessage {
        data: 0x32,
        ..MESSAGE
    };
    message.set(Some(moved)).unwrap();
    assert_eq!(chips.delivers(message.event()), Some(moved));
    message.set(None).unwrap();
    assert_eq!(chips.delivers(message.event()), None);
}

#[test]
fn what_is_raised_while_masked_is_pending_and_no_more_once_delivered_or_cleared() {
    let chips = FakeChips::default();
    let message = chips.controller().message().unwrap();
    assert!(!message.is_pending());
    message.trigger();
    message.trigger();
    assert!(message.is_pending() && message.is_pending());
    message.clear_pending();
    assert!(!message.is_pending());
    message.trigger();
    message.set(Some(MESSAGE)).unwrap();
    assert!(!message.is_pending(), "KVM has it");
    assert_eq!(message.event().read().unwrap(), 1, "for KVM to read");
}

#[test]
fn vectors_have_numbers_of_their_own_which_are_used_again() {
    let chips = FakeChips::default();
    let controller = chips.controller();
    let [first, second] = [(); 2].map(|()| controller.message().unwrap());
    first.set(Some(MESSAGE)).unwrap();
    second.set(Some(MESSAGE)).unwrap();
    assert_eq!(chips.books().messages.len(), 2);
    drop(first);
    assert_eq!(Vec::from_iter(chips.books().messages.keys().copied()), [25]);
    let third = controller.message().unwrap();
    third.set(Some(MESSAGE)).unwrap();
    assert!(chips.books().messages.contains_key(&24));
    drop((second, third));
    let books = chips.books();
    assert!(books.messages.is_empty() && books.connected.is_empty());
}

#[test]
fn a_message_that_the_hypervisor_refuses_stays_masked() {
    let chips = FakeChips::default();
    let message = chips.controller().message().unwrap();
    chips.books().failure = Some(libc::EINVAL);
    message.set(Some(MESSAGE)).unwrap_err();
    message.trigger();
    assert!(message.is_pending());
    message.set(Some(MESSAGE)).unwrap();
    assert_eq!(chips.delivers(message.event()), Some(MESSAGE));
}

#[test]
fn a_shared_line_is_asserted_while_anyone_asserts_it() {
    let chips = FakeChips::default();
    let controller = chips.controller();
    let [one, other] = [(); 2].map(|()| controller.line(LINE_FIRST).unwrap());
    one.set(true);
    one.set(true);
    other.set(true);
    one.set(false);
    assert_eq!(chips.books().asserted, [LINE_FIRST]);
    drop(other);
    assert!(chips.books().asserted.is_empty());
}

#[test]
fn pins_of_neighbours_have_different_lines_and_others_are_refused() {
    assert_eq!(pci_line(0, 1), 16);
    assert_eq!(pci_line(1, 1), 17);
    assert_eq!(pci_line(1, 4), 20);
    assert_eq!(pci_line(31, 4), 18);
    let controller = FakeChips::default().controller();
    assert!(controller.line(LINE_FIRST - 1).is_err());
    assert!(controller.line(LINE_FIRST + LINES).is_err());
    assert!(controller.edge(LINE_FIRST).is_err());
}

//! Clients at random, against a model.

use causeway_mediator_testing::Live;
use causeway_protocol::message::*;
use proptest::prelude::*;

use crate::rig::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Allocate,
    Free,
    CreateSpace,
    DestroySpace,
    MapCpu,
    Reset,
}

/// What the model knows of one client.
#[derive(Default)]
struct Model {
    memories: Vec<u32>,
    spaces: Vec<u32>,
}

const CLIENTS: usize = 3;

/// Clients, and what each must have.
struct World {
    rig: Rig,
    guests: Vec<Guest>,
    models: [Model; CLIENTS],
}

impl World {
    fn new() -> Self {
        let rig = Rig::new();
        let guests = (1..=CLIENTS as u32).map(|n| rig.guest.beside(n)).collect();
        Self {
            rig,
            guests,
            models: Default::default(),
        }
    }

    /// Has `actor` take a step, on something of `owner`'s if the step needs something. Whether it
    /// was right that the step succeeded, or did not.
    fn take(&mut self, actor: usize, owner: usize, step: Step, index: prop::sample::Index) -> bool {
        let guest = &self.guests[actor];
        let (own, theirs) = (actor == owner, &mut self.models[owner]);
        let among = |list: &[u32]| (!list.is_empty()).then(|| index.index(list.len()));
        let (memory, space) = (among(&theirs.memories), among(&theirs.spaces));
        match (step, memory, space) {
            (Step::Free, Some(at), _) => {
                let freed = guest.free(theirs.memories[at]);
                if own {
                    theirs.memories.remove(at);
                }
                freed.is_ok() == own
            }
            (Step::DestroySpace, _, Some(at)) => {
                let ended = guest.by_handle(Opcode::DestroySpace, theirs.spaces[at]);
                if own {
                    theirs.spaces.remove(at);
                }
                ended.is_ok() == own
            }
            (Step::MapCpu, Some(at), _) => {
                guest.map_cpu(theirs.memories[at], 0, PAGE, READ).is_ok() == own
            }
            (Step::Free | Step::DestroySpace | Step::MapCpu, ..) => true,
            (Step::Allocate, ..) => {
                let memory = guest.memory(MemoryKind::Host, PAGE);
                self.models[actor].memories.push(memory);
                true
            }
            (Step::CreateSpace, ..) => {
                self.models[actor].spaces.push(guest.space());
                true
            }
            (Step::Reset, ..) => {
                guest.reset();
                guest.hello();
                self.models[actor] = Model::default();
                true
            }
        }
    }

    /// What there must be of all clients together.
    fn live(&self) -> Live {
        let sum = |count: fn(&Model) -> usize| self.models.iter().map(count).sum::<usize>() as u64;
        Live {
            bytes: PAGE * sum(|m| m.memories.len()),
            memories: sum(|m| m.memories.len()),
            spaces: sum(|m| m.spaces.len()),
            ..NOTHING
        }
    }
}

fn step() -> impl Strategy<Value = (usize, usize, Step, prop::sample::Index)> {
    let kind = prop_oneof![
        4 => Just(Step::Allocate),
        3 => Just(Step::Free),
        2 => Just(Step::CreateSpace),
        2 => Just(Step::DestroySpace),
        2 => Just(Step::MapCpu),
        1 => Just(Step::Reset),
    ];
    (0..CLIENTS, 0..CLIENTS, kind, any::<prop::sample::Index>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever clients do, and whosever handles they name: what is theirs obeys, and nothing else
    /// does.
    #[test]
    fn clients_own_what_the_model_says(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for (actor, owner, step, index) in steps {
            let right = world.take(actor, owner, step, index);
            prop_assert!(right, "{:?} of {} on {}", step, actor, owner);
            prop_assert_eq!(world.rig.backend.live(), world.live());
            for (guest, model) in world.guests.iter().zip(&world.models) {
                let owns = !model.memories.is_empty() || !model.spaces.is_empty();
                prop_assert_eq!(guest.owns(), owns);
            }
        }
    }
}

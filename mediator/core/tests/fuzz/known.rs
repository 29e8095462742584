//! What a guest has learnt, to make something of it.

use causeway_mediator_testing::Batch;
use causeway_protocol::message::*;

use crate::random::Random;

/// What the guest has learnt so far.
#[derive(Default)]
pub struct Known {
    pub spaces: Vec<u32>,
    pub memories: Vec<u32>,
    pub modules: Vec<u32>,
    pub kernels: Vec<u32>,
    pub buffers: Vec<u32>,
    pub recordings: Vec<u32>,
    pub arrays: Vec<u32>,
    pub textures: Vec<u32>,
    pub addresses: Vec<u64>,
    pub token: Token,
}

impl Known {
    pub fn of<T: Copy + Default>(random: &mut Random, list: &[T], otherwise: T) -> T {
        match list.is_empty() || random.one_in(16) {
            true => otherwise,
            false => random.pick(list),
        }
    }

    pub fn space(&self, random: &mut Random) -> u32 {
        Self::of(random, &self.spaces, PREVIOUS)
    }

    pub fn memory(&self, random: &mut Random) -> u32 {
        Self::of(random, &self.memories, PREVIOUS)
    }

    pub fn any(&self, random: &mut Random) -> u32 {
        let lists = [
            &self.spaces,
            &self.memories,
            &self.modules,
            &self.kernels,
            &self.buffers,
            &self.recordings,
            &self.arrays,
            &self.textures,
        ];
        Self::of(random, random_list(random, &lists), 7)
    }

    /// Notes what a message returned.
    pub fn learn(&mut self, opcode: Opcode, batch: &Batch, message: usize) {
        let handle = batch
            .reply::<HandleReply>(message)
            .map(|reply| reply.handle);
        match opcode {
            Opcode::CreateSpace => self.spaces.extend(handle),
            Opcode::Allocate | Opcode::Import | Opcode::RegisterRam => self.memories.extend(handle),
            Opcode::LoadModule => self.modules.extend(handle),
            Opcode::GetKernel | Opcode::GetKernelAt => self.kernels.extend(handle),
            Opcode::CreateCommandBuffer | Opcode::CreatePriorityCommandBuffer => {
                self.buffers.extend(handle)
            }
            Opcode::CreateRecording => self.recordings.extend(handle),
            Opcode::CreateArray => self.arrays.extend(handle),
            Opcode::CreateTexture => self.textures.extend(handle),
            Opcode::MapGpu | Opcode::MapCpu | Opcode::GetVariable => {
                let reply = batch.reply::<AddressReply>(message);
                self.addresses.extend(reply.map(|reply| reply.address));
            }
            Opcode::Export => self.token = batch.reply(message).unwrap_or_default(),
            _ => {}
        }
        for list in [
            &mut self.spaces,
            &mut self.memories,
            &mut self.modules,
            &mut self.kernels,
            &mut self.buffers,
            &mut self.recordings,
            &mut self.arrays,
            &mut self.textures,
        ] {
            list.drain(..list.len().saturating_sub(6));
        }
        self.addresses
            .drain(..self.addresses.len().saturating_sub(12));
    }
}

fn random_list<'a>(random: &Random, lists: &[&'a Vec<u32>]) -> &'a [u32] {
    lists[(random.0 >> 7) as usize % lists.len()]
}

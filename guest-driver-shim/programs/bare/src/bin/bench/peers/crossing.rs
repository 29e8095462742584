//! One line of two GPUs. Every sample begins with memory that has other content than it is to get,
//! and ends with a look at all of it by the GPU that has it.

use causeway_bench_workloads::PeerWork;
use causeway_guests::Required;
use causeway_kernels::peers::{
    CHECK_PATTERN, DISTANCE, FOLLOW_LINKS, LINK_WORDS, STEPS, STORE_PATTERN, THREADS, blocks,
    end_of_links,
};
use causeway_shim::{Buffer, Kernel, LaunchShape, Module, Parameters};

use crate::Bench;
use crate::line::Repeat;

/// The kernels, on one GPU.
pub struct Kernels<'m> {
    store: Kernel<'m>,
    check: Kernel<'m>,
    link: Kernel<'m>,
    follow: Kernel<'m>,
}

impl<'m> Kernels<'m> {
    pub fn of(module: &'m Module<'_>) -> Self {
        let kernel = |name| module.kernel(name).required(name);
        Self {
            store: kernel(STORE_PATTERN),
            check: kernel(CHECK_PATTERN),
            link: kernel(LINK_WORDS),
            follow: kernel(FOLLOW_LINKS),
        }
    }
}

/// How one GPU reaches the memory of a line.
#[derive(Clone, Copy)]
pub struct Reach<'m> {
    pub kernels: &'m Kernels<'m>,
    /// A page of host memory of its own, whose first word kernels get for their result.
    pub page: &'m Buffer<'m>,
    /// Where the memory is for it.
    pub at: u64,
}

impl<'m> Reach<'m> {
    fn result(&self) -> u64 {
        self.page.cpu.load_u64(0).required("the page")
    }

    /// Launches a kernel of many threads on the words at `at`.
    fn launch(&self, bench: &mut Bench<'_>, kernel: &'m Kernel<'m>, values: [u64; 4], words: u64) {
        let shape = LaunchShape {
            grid: [blocks(words), 1, 1],
            block: [THREADS, 1, 1],
            shared_bytes: 0,
        };
        let commands = &mut bench.pipeline.commands;
        let launched = commands.launch(shape, &parameters(kernel, &values));
        launched.required("launching");
    }

    fn store(&self, bench: &mut Bench<'_>, at: u64, words: u64, mask: u64) {
        self.launch(bench, &self.kernels.store, [at, words, mask, 0], words);
    }

    /// Launches the kernel that compares, with zero words found so far.
    fn check(&self, bench: &mut Bench<'_>, at: u64, words: u64, mask: u64) {
        let values = [at, words, mask, self.page.gpu.address()];
        self.launch(bench, &self.kernels.check, values, words);
    }

    /// Asserts that the words at `at` are those of the pattern.
    fn has(&self, bench: &mut Bench<'_>, at: u64, words: u64, mask: u64) {
        self.clear();
        self.check(bench, at, words, mask);
        bench.wait();
        assert_eq!(self.result(), 0, "of {words} words did not arrive");
    }

    fn clear(&self) {
        self.page.cpu.store_u64(0, 0).required("the page");
    }
}

/// Does the work of a line again and again.
pub struct Crossing<'r, 'd> {
    work: PeerWork,
    bytes: u64,
    user: Reach<'r>,
    owner: Reach<'r>,
    /// Memory of the user's own, the other side of copies.
    own: u64,
    /// The GPU that has the memory, if it is not the one that does the work.
    other: Option<&'r mut Bench<'d>>,
    /// What tells the content of one sample from that of others.
    mask: u64,
    /// The word from which links are followed.
    first: u64,
    is_linked: bool,
    /// Whether the work of this sample was done.
    has_run: bool,
}

impl<'r, 'd> Crossing<'r, 'd> {
    pub fn new(
        (work, bytes): (PeerWork, u64),
        (user, owner): (Reach<'r>, Reach<'r>),
        own: u64,
        other: Option<&'r mut Bench<'d>>,
    ) -> Self {
        Self {
            work,
            bytes,
            user,
            owner,
            own,
            other,
            mask: 0,
            first: 0,
            is_linked: false,
            has_run: false,
        }
    }

    const fn words(&self) -> u64 {
        self.bytes / 8
    }

    /// Puts content into the memory, as the GPU that has it.
    fn fill(&mut self, owner: &mut Bench<'_>) {
        let (reach, words) = (self.owner, self.words());
        match self.work {
            PeerWork::Store | PeerWork::CopyTo => reach.store(owner, reach.at, words, !self.mask),
            PeerWork::CopyOf => reach.store(owner, reach.at, words, self.mask),
            PeerWork::Load => {
                reach.store(owner, reach.at, words, self.mask);
                // The one word that loads must find.
                let last = reach.at + self.bytes - 8;
                owner.pipeline.commands.fill(last, 8, 0).required("filling");
            }
            PeerWork::Follow if self.is_linked => {}
            PeerWork::Follow => {
                let values = [reach.at, words, DISTANCE, 0];
                reach.launch(owner, &reach.kernels.link, values, words);
                self.is_linked = true;
            }
        }
        owner.wait();
    }

    fn submit(&self, bench: &mut Bench<'_>) {
        let (user, words) = (self.user, self.words());
        let copy = |bench: &mut Bench<'_>, to, from| {
            let copied = bench.pipeline.commands.copy(to, from, self.bytes);
            copied.required("copying");
        };
        match self.work {
            PeerWork::Store => user.store(bench, user.at, words, self.mask),
            PeerWork::Load => user.check(bench, user.at, words, self.mask),
            PeerWork::CopyTo => copy(bench, user.at, self.own),
            PeerWork::CopyOf => copy(bench, self.own, user.at),
            PeerWork::Follow => {
                let values = [user.at, self.first, STEPS.into(), user.page.gpu.address()];
                let parameters = parameters(&user.kernels.follow, &values);
                let commands = &mut bench.pipeline.commands;
                commands.launch(ONE, &parameters).required("launching");
            }
        }
    }
}

impl<'d> Repeat<'d> for Crossing<'_, 'd> {
    fn prepare(&mut self, bench: &mut Bench<'d>) {
        self.mask += 1;
        match self.other.take() {
            Some(owner) => {
                self.fill(owner);
                self.other = Some(owner);
            }
            None => self.fill(bench),
        }
        let words = self.words();
        match self.work {
            PeerWork::CopyTo => self.user.store(bench, self.own, words, self.mask),
            PeerWork::CopyOf => self.user.store(bench, self.own, words, !self.mask),
            PeerWork::Store | PeerWork::Load | PeerWork::Follow => {}
        }
        self.user.clear();
        // The device is awake afterwards.
        bench.wait();
    }

    fn run(&mut self, bench: &mut Bench<'d>) {
        self.submit(bench);
        bench.wait();
        self.has_run = true;
    }

    fn finish(&mut self, bench: &mut Bench<'d>) {
        let (user, owner, words) = (self.user, self.owner, self.words());
        if !core::mem::take(&mut self.has_run) {
            return;
        }
        match self.work {
            PeerWork::Store | PeerWork::CopyTo => {
                let bench = self.other.as_deref_mut().unwrap_or(bench);
                owner.has(bench, owner.at, words, self.mask);
            }
            PeerWork::CopyOf => user.has(bench, self.own, words, self.mask),
            PeerWork::Load => assert_eq!(user.result(), 1, "words are not as they were stored"),
            PeerWork::Follow => {
                let end = end_of_links(self.first, STEPS.into(), words);
                assert_eq!(user.result(), end, "links lead elsewhere");
                // No line that a cache has from this sample.
                self.first = end;
            }
        }
    }
}

/// One thread.
const ONE: LaunchShape = LaunchShape {
    grid: [1, 1, 1],
    block: [1, 1, 1],
    shared_bytes: 0,
};

/// Returns the parameters of a kernel, all of them 64-bit numbers: as many of `values` as it has.
fn parameters<'f>(kernel: &'f Kernel<'f>, values: &[u64]) -> Parameters<'f, 4> {
    let mut parameters = kernel.parameters().required("the kernel's parameters");
    let count = kernel.parameter_bytes() as usize / 8;
    for (index, value) in values.iter().enumerate().take(count) {
        parameters.set(index, value).required("a parameter");
    }
    parameters
}

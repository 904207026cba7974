// The fake polkit as a program: fake_polkit ADDRESS. A line on standard input sets the mode (allow, deny, challenge,
// refuse, hang, garbage, empty, fail), denies one action ("deny ACTION"), or says "change". Each is confirmed by "ok".
// "questions" lists what was asked so far.
#include "support/fake_polkit.hpp"

#include <iostream>
#include <map>

int main(int argc, char** argv) {
    using perceptd::test::FakePolkit;
    if (argc != 2) {
        return 2;
    }
    FakePolkit polkit(argv[1]);
    const std::map<std::string, FakePolkit::Mode> modes{
        {"allow", FakePolkit::Mode::Allow},         {"deny", FakePolkit::Mode::Deny},
        {"challenge", FakePolkit::Mode::Challenge}, {"refuse", FakePolkit::Mode::Refuse},
        {"hang", FakePolkit::Mode::Hang},           {"garbage", FakePolkit::Mode::Garbage},
        {"empty", FakePolkit::Mode::Empty},         {"fail", FakePolkit::Mode::Fail}};
    std::string line;
    std::cout << "ok" << std::endl;
    while (std::getline(std::cin, line)) {
        if (const auto mode = modes.find(line); mode != modes.end()) {
            polkit.set(mode->second);
        } else if (line.rfind("deny ", 0) == 0) {
            polkit.deny(line.substr(5));
        } else if (line == "change") {
            polkit.change();
        } else if (line == "questions") {
            for (const auto& question : polkit.questions()) {
                std::cout << question.kind << ' ' << question.action << ' ' << question.flags << ' '
                          << (question.name.empty() ? "-" : question.name) << ' ' << question.pid << ' '
                          << question.start_time << ' ' << question.uid << '\n';
            }
        } else {
            return 2;
        }
        std::cout << "ok" << std::endl;
    }
}

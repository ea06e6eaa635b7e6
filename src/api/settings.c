/* Settings of a communicator and where they come from: config, then MPI_Info, then rank 0's
 * environment. What they are, and how texts become values, is in the table (core/settings.h). */
#include "api/comm.h"

#include <stdio.h>
#include <string.h>

static rill_status gather_defaults(const rill_config *config, const rill__info *info,
                                   rill__defaults *d) {
    RILL_TRY(rill__settings_read(info, d));
    rill__settings_take(config, d);
    if (d->hosts_of[0]) RILL_TRY(rill__hosts_check(d->hosts_of));
    return rill__settings_check(d);
}

rill_status rill__config_check(const rill_config *config) {
    if (!config || config->size >= offsetof(rill_config, progress_thread)) return RILL_OK;
    return rill__fail(RILL_ERR_ARGUMENT,
                      "rill_comm_create: config.size is %zu: use RILL_CONFIG_INIT", config->size);
}

rill_status rill__defaults_agree(const rill_config *config, rill__link *link,
                                 const rill__info *info, rill__defaults *d) {
    struct {
        rill__defaults defaults;
        int32_t status;
        char error[200];
    } news;
    memset(&news, 0, sizeof news);
    if (link->rank == 0) {
        news.status = (int32_t)gather_defaults(config, info, &news.defaults);
        if (news.status) snprintf(news.error, sizeof news.error, "%s", rill_last_error());
    }
    RILL_TRY(link->table->bcast(link, &news, sizeof news, 0));
    *d = news.defaults;
    return news.status ? rill__fail((rill_status)news.status, "rill_comm_create: %s", news.error)
                       : RILL_OK;
}
